//! Whose hold `release` means without an id: jobs of one engine share an owner, and each gives back its own.

#![allow(
    clippy::disallowed_methods,
    reason = "the test removes files of its own, which no store has"
)]

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
            ("tenure -q acquire x; exec tenure release x", "released x\n"),
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
pub(crate) fn named(scene: &Scene, name: &str) -> String {
    let copy = scene.path(name);
    std::fs::copy("/bin/dash", &copy).expect("a shell under another name");
    copy.display().to_string()
}

#[allow(clippy::too_many_lines, reason = "it is a table")]
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
        // Guards, conditions, functions and traps do not hide the work.
        (
            "crond",
            "sh -c 'tenure -q acquire x >/dev/null || exit 1; cd / || exit 1; sleep 0; tenure -q release x'",
            0,
            false,
        ),
        (
            "systemd",
            "sh -c '[ -d / ] || exit 3; tenure -q acquire x >/dev/null || exit 1; [ -d /none ] && exit 4; A=1 sleep 0'",
            0,
            false,
        ),
        (
            "engine",
            "sh -c 'tenure -q acquire x >/dev/null || exit 1; echo 1 | sleep 0; exit 5'",
            5,
            false,
        ),
        (
            "engine",
            "sh -c 'tenure -q acquire x >/dev/null; if ! sleep 0; then echo; fi; :'",
            0,
            false,
        ),
        (
            "crond",
            "bash -c 'job() { tenure -q acquire x >/dev/null || return 1; cd / || return; sleep 0; }; job; :'",
            0,
            false,
        ),
        (
            "sshd",
            "sh -c 'trap \"tenure -q release x\" EXIT; tenure -q acquire x >/dev/null'",
            0,
            false,
        ),
        (
            "engine",
            "bash -c '(tenure -q acquire x >/dev/null; sleep 0; false) & wait $!'",
            1,
            false,
        ),
        ("sshd", "sh -c 'tenure -q acquire x && echo held'", 2, false),
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

/// What a step, a cell or a task starts has a life of its own: a script there owns its holds as everywhere, takes turns
/// with others, frees nothing of theirs, and leaves nothing behind when it dies.
#[test]
fn scripts_below_a_job_own_their_holds() {
    let scene = Scene::new();
    named(&scene, "Runner.Worker");
    std::fs::create_dir_all(scene.path("_temp")).expect("a folder");
    scene.script(
        "job.sh",
        "#!/bin/bash\n{ tenure -q acquire x -w $2 >/dev/null 2>&1 && echo ok >got.$1; } 2>&1 | cat\n\
         [ -e got.$1 ] && { echo \"$1 in\" >>log; sleep $3; echo \"$1 out\" >>log; }\n\
         tenure -q release x >/dev/null 2>&1; echo \"$1 $?\" >>log\n",
    );
    scene.script("turn.sh", "#!/bin/bash\ntenure -q acquire x --wait forever >/dev/null || exit\nsleep 0.2\ntenure -q release x >/dev/null\n");
    scene.script(
        "dies.sh",
        "#!/bin/bash\ntenure -q acquire x >/dev/null\nkill -9 $$\n",
    );
    let parents = |step: &str| {
        scene.write("_temp/1f.sh", step);
        let cell =
            format!("import subprocess\nsubprocess.run(['bash'], input={step:?}, text=True)\n");
        scene.write("ipykernel_launcher.py", &cell);
        [
            "echo 'bash -e _temp/1f.sh; true' >call; ./Runner.Worker call",
            "python3 -m ipykernel_launcher; true",
            "bash _temp/plain.sh; true",
        ]
    };
    for (at, parent) in parents("./job.sh A 5s 1.5 &\nsleep 0.5\n./job.sh B 200ms 1\nwait\n")
        .into_iter()
        .enumerate()
    {
        let plain = std::fs::read(scene.path("_temp/1f.sh")).expect("a step");
        std::fs::write(scene.path("_temp/plain.sh"), plain).expect("the same");
        for file in ["log", "got.A", "got.B"] {
            let _ = std::fs::remove_file(scene.path(file));
        }
        shell(&scene, "bash", parent);
        let log = std::fs::read_to_string(scene.path("log")).unwrap_or_default();
        assert_eq!(log, "A in\nB 6\nA out\nA 0\n", "{at}: {parent}");
    }
    for parent in parents("printf 'a\\nb\\nc\\n' | xargs -P3 -n1 ./turn.sh; echo $? >code\n") {
        shell(&scene, "bash", parent);
        let code = std::fs::read_to_string(scene.path("code")).unwrap_or_default();
        assert_eq!(code, "0\n", "{parent}");
    }
    for parent in parents("./dies.sh || true\ntenure -q run -n x -- true; echo $? >code\n") {
        shell(&scene, "bash", parent);
        let code = std::fs::read_to_string(scene.path("code")).unwrap_or_default();
        assert_eq!(code, "0\n", "{parent}");
    }
}

/// A script that only takes the lock for its caller is as a line that does: the hold follows the caller.
#[test]
fn helper_script_takes_the_lock_for_its_caller() {
    let scene = Scene::new();
    for name in ["sshd", "systemd"] {
        named(&scene, name);
    }
    scene.script(
        "lk.sh",
        "#!/bin/sh\n# takes it\nset -e\ntenure -q acquire \"$1\" >/dev/null || exit 1\n",
    );
    scene.script(
        "ctl.sh",
        "#!/bin/sh\ncase $1 in\nlock) tenure -q acquire x >/dev/null ;;\nunlock) tenure -q release x >/dev/null ;;\nesac\n",
    );
    scene.script(
        "fn.sh",
        "#!/bin/bash\nlock() {\n  tenure -q acquire x >/dev/null\n}\nunlock() {\n  tenure -q release x >/dev/null\n}\n\"$@\"\n",
    );
    scene.script(
        "behind.sh",
        "#!/bin/bash\n(\n  tenure -q acquire x >/dev/null || exit 1\n  sleep 1\n  tenure -q release x >/dev/null\n) &\ndisown\nsleep 0.3\n",
    );
    scene.script("works.sh", "#!/bin/sh\nlock() { tenure -q acquire x >/dev/null; }\nlock\ntrue work\ndate >/dev/null; sleep 0\ntenure -q run -n x -- true 2>/dev/null; echo $?\n");
    for (line, expected) in [
        (
            "./lk.sh x; tenure -q run -n x -- true 2>/dev/null; echo $?; true",
            "4",
        ),
        (
            "sh ./lk.sh x; tenure -q run -n x -- true 2>/dev/null; echo $?; true",
            "4",
        ),
        (
            "cd .; bash -c './lk.sh x; tenure -q run -n x -- true 2>/dev/null; echo $?; true'",
            "4",
        ),
        (
            "echo './lk.sh x; echo $?' >call; ./sshd call 2>/dev/null",
            "1",
        ),
        (
            "echo 'sh ./lk.sh x; echo $?' >call; ./systemd call 2>/dev/null",
            "1",
        ),
        ("./works.sh", "4"),
        // A helper with two verbs takes the lock for its caller as well.
        (
            "./ctl.sh lock; tenure -q run -n x -- true 2>/dev/null; echo $?; ./ctl.sh unlock; tenure -q run -n x -- true; echo $?",
            "4 0",
        ),
        (
            "./fn.sh lock; tenure -q run -n x -- true 2>/dev/null; echo $?; ./fn.sh unlock; tenure -q run -n x -- true; echo $?",
            "4 0",
        ),
        (
            "tenure -q run y -- ./ctl.sh lock; tenure -q run -n x -- true 2>/dev/null; echo $?; :",
            "4",
        ),
        (
            "tenure -q run y -- tenure -q acquire x >/dev/null; tenure -q run -n x -- true 2>/dev/null; echo $?; :",
            "4",
        ),
        // The part of a script that goes on in the background owns what that part takes.
        (
            "./behind.sh; sleep 0.5; tenure -q run -n x -- true 2>/dev/null; echo $?; sleep 1.5; tenure -q run -n x -- true; echo $?",
            "4 0",
        ),
        // A copy that has outlived its shell owns its hold.
        (
            "bash -c '( sleep 0.3; tenure -q acquire x >/dev/null; echo $?; tenure -q run -n x -- true 2>/dev/null; echo $? ) & disown'; sleep 1.2",
            "0 4",
        ),
    ] {
        let said = shell(&scene, "bash", line);
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words.join(" "), expected, "{line}");
        scene.run(["run", "--force", "--yes", "x", "--", "true"]);
    }
}

/// All subagents of a host share its process, and a shell that executes its last command leaves the host as the caller.
#[test]
fn one_subagent_of_a_host_frees_no_hold_of_another() {
    let scene = Scene::new();
    for (program, take) in [
        ("bash", "tenure -q acquire x"),
        ("dash", "cd / && tenure -q acquire x"),
    ] {
        let script = format!(
            "{program} -c '{take} --request-id a >/dev/null'; echo $?\n\
             {program} -c '{take} -n --request-id b >/dev/null 2>&1; tenure -q release x 2>/dev/null'; echo $?\n\
             {program} -c 'tenure -q release x 2>said'; echo $?; grep -c 'request-id a' said\n\
             tenure check x --output json | grep -c standing.:.held\n\
             {program} -c 'tenure -q release x --request-id a >/dev/null'; echo $?\n"
        );
        scene.write("script", &script);
        let said = shell(&scene, "sh", &format!("{} script", named(&scene, "codex")));
        assert_eq!(said, "0\n6\n6\n1\n1\n0\n", "{program}");
    }
}

/// Steps of CI, tasks of Ansible and cells of a notebook each have processes of their own. The hold follows the job, any
/// step gives it back, and where no process of the job can be seen nothing is held.
#[allow(clippy::too_many_lines, reason = "it is a table")]
#[test]
fn owner_of_a_hold_between_steps_table() {
    let scene = Scene::new();
    let step = |path: &str| {
        let at = scene.path(path);
        std::fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
        at.display().to_string()
    };
    let (github, act, jenkins) = (
        step("_temp/1f.sh"),
        step("act/workflow/0"),
        step("w@tmp/durable-1f/script.sh.copy"),
    );
    let (freestyle, module) = (
        step("tmp/jenkins0123.sh"),
        step("ansible-tmp-17/AnsiballZ_command.py"),
    );
    let bash = |script: &str| format!("bash -e {script}");
    let task = format!("( sh -c 'python3 {module} && sleep 0' )");
    // What lasts; how it runs a step; whether a step may hold, and what the answer says of it.
    for (parent, script, call, is_held, told) in [
        (
            "Runner.Worker",
            "script",
            bash(&github),
            true,
            "until the job ends (Runner.Worker, PID",
        ),
        (
            "Agent.Worker",
            "script",
            format!("sh -c 'bash {github}'"),
            true,
            "until the job ends (Agent.Worker, PID",
        ),
        (
            "buildkite-agent",
            "bootstrap",
            bash(&github),
            true,
            "until the job ends (buildkite-agent, PID",
        ),
        (
            "buildkite-agent",
            "start",
            "bash -c 'cd / && tenure acquire x'".to_owned(),
            false,
            "makes the call",
        ),
        (
            "Runner.Worker",
            "script",
            format!("claude {github}"),
            true,
            "until its owner ends (claude, PID",
        ),
        (
            "engine",
            "script",
            bash(&github),
            false,
            "each step of GitHub Actions",
        ),
        (
            "engine",
            "script",
            bash(&act),
            false,
            "each step of GitHub Actions",
        ),
        (
            "java",
            "script",
            format!("sh -xe {jenkins}"),
            false,
            "each step of Jenkins",
        ),
        (
            "java",
            "script",
            format!("/bin/sh -xe {freestyle}"),
            false,
            "each step of Jenkins",
        ),
        (
            "gitlab-runner",
            "script",
            format!("bash <{github}"),
            true,
            "until this shell ends (bash, PID",
        ),
        (
            "ansible-playbook",
            "script",
            task.clone(),
            true,
            "until the job ends (ansible-playboo, PID",
        ),
        ("sshd", "script", task, false, "each step of Ansible"),
    ] {
        let line = |words: &str| {
            let text = format!("tenure {words}\n");
            for file in [&github, &act, &jenkins, &freestyle] {
                std::fs::write(file, &text).expect("a step");
            }
            let python = format!(
                "import subprocess\nraise SystemExit(subprocess.run({words:?}.split(), executable='tenure').returncode)\n"
            );
            std::fs::write(&module, python.replace("(\"", "(\"tenure ")).expect("a module");
        };
        named(&scene, "claude");
        let path = format!("PATH={}:$PATH", scene.root().display());
        // The parent lets the test change the step in between.
        let go = scene.path("go");
        let _ = std::fs::remove_file(&go);
        line("acquire x");
        scene.write(
            script,
            &format!(
                "{path}\n{call} >said 2>&1; echo $?; cp said first\n\
                 touch half; while [ ! -e go ]; do sleep 0.05; done; rm half\n\
                 tenure check x --output json | grep -c standing.:.held\n{call} >said 2>&1; echo $?\n"
            ),
        );
        let name = named(&scene, parent);
        let said = std::thread::scope(|scope| {
            let run = scope.spawn(|| shell(&scene, "sh", &format!("{name} {script}")));
            while !scene.path("half").exists() && !run.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            line("release x");
            std::fs::write(&go, "").expect("a file");
            run.join().expect("the steps")
        });
        let first = std::fs::read_to_string(scene.path("first")).unwrap_or_default();
        let second = std::fs::read_to_string(scene.path("said")).unwrap_or_default();
        // What lasts as long as the step is gone with it, and so is the lock: the next release says so.
        let is_of_step = told.contains("this shell") || told.contains("claude");
        let lasts = u8::from(is_held && !is_of_step);
        let code = if is_held { 0 } else { 2 };
        // An `acquire` takes the lock itself, and is refused again.
        let given_back = if call.contains("acquire") { 2 } else { 0 };
        let expected = format!("{code}\n{lasts}\n{given_back}\n");
        assert_eq!(said, expected, "{parent}: {call}: {first}{second}");
        assert!(first.contains(told), "{parent}: {call}: {first}");
        assert!(scene.is_free("x"), "{parent}: {call}: {second}");
    }
    let said = shell(
        &scene,
        "bash",
        "tenure acquire x --owner job; echo $?; true",
    );
    assert!(said.ends_with("2\n") || said.starts_with("2\n"), "{said}");
    assert!(
        said.contains("no process above this call is known"),
        "{said}"
    );
}

#[test]
fn cells_of_a_notebook_share_the_hold_of_its_kernel() {
    let scene = Scene::new();
    scene.write(
        "ipykernel_launcher.py",
        r#"
import subprocess
def cell(text):
    ended = subprocess.run(["bash"], input=text, text=True, capture_output=True)
    print(ended.returncode, (ended.stdout + ended.stderr).split(",")[0].split("\n")[0])
cell("tenure acquire x\ntrue\n")
cell("tenure run -n x -- true")
cell("tenure -q release x >/dev/null")
cell("tenure acquire x --owner job\n")
print(subprocess.run(["bash", "-c", "tenure release x >/dev/null; exit $?"]).returncode)
"#,
    );
    let said = shell(&scene, "sh", "python3 -m ipykernel_launcher; true");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("0 acquired x: held until the job ends (python3"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("4 ") || lines[1].starts_with("81 "),
        "{said}"
    );
    assert_eq!(lines[2], "0 ", "{said}");
    assert!(
        lines[3].starts_with("0 acquired x: held until the job ends"),
        "{said}"
    );
    assert_eq!(lines[4], "0", "{said}");
}

/// The work went on without its lock, and its release says so.
#[test]
fn release_of_a_hold_that_has_ended_table() {
    let scene = Scene::new();
    let lapsed =
        "tenure -q acquire x --owner none --request-id r --ttl 300ms >/dev/null; sleep 0.7; ";
    let dead = "sleep 100 & p=$!; tenure -q acquire x --owner $p --request-id r >/dev/null; kill $p; wait $p 2>/dev/null; ";
    for begin in [lapsed, dead] {
        for (line, expected, told) in [
            (
                "tenure release x; echo $?",
                "80",
                "x was lost before this release",
            ),
            (
                "tenure release x --request-id r; echo $?",
                "80",
                "ended without a release since",
            ),
            (
                "sh -c 'tenure release x --request-id r; exit $?'; echo $?",
                "80",
                "was lost before",
            ),
            // What was left behind is cleared, so the next release finds nothing.
            (
                "tenure -q release x 2>/dev/null; tenure release x; echo $?",
                "0",
                "nothing to release",
            ),
            // Another caller clears nothing.
            (
                "sh -c 'tenure release x; exit $?'; echo $?",
                "0",
                "is not held; its last hold",
            ),
            (
                "sh -c 'tenure -q release x; exit $?'; tenure release x; echo $?",
                "80",
                "was lost before",
            ),
            (
                "tenure release x --request-id other; echo $?",
                "0",
                "not held",
            ),
            // Somebody has had the lock since.
            (
                "tenure -q run x -- true; tenure release x; echo $?",
                "0",
                "nothing to release",
            ),
            (
                "tenure release x --output json; echo $?",
                "80",
                "\"lost\":true",
            ),
            // An id says which hold is meant, whoever has had the lock since.
            (
                "tenure -q run x -- true; tenure release x --request-id r; echo $?",
                "80",
                "x was lost before this release, and the work went on without it: request id r was taken over at",
            ),
            (
                "tenure -q acquire x --request-id s; tenure release x --request-id r; echo $?",
                "80",
                "by request id s",
            ),
            (
                "tenure -q acquire x --request-id s; tenure -q release x; tenure release x --request-id r --output json; echo $?",
                "80",
                "\"request_id\":\"r\"",
            ),
            (
                "tenure -q acquire x --request-id s; tenure -q release x --request-id other; echo $?",
                "6",
                "",
            ),
            // The id was used again, and given back in time.
            (
                "tenure -q run x -- true; tenure -q acquire x --request-id r; tenure -q release x; \
                 tenure release x --request-id r; echo $?",
                "0",
                "nothing to release",
            ),
            (
                "tenure -q clean; tenure release x --request-id r; echo $?",
                "80",
                "was lost before",
            ),
        ] {
            let said = shell(&scene, "bash", &format!("{begin}{line}"));
            let (code, rest): (Vec<&str>, Vec<&str>) = said
                .lines()
                .partition(|line| line.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(code, [expected], "{begin}{line}: {said}");
            let rest = rest
                .join("\n")
                .replace("some time after ", "")
                .replace(": true", ":true");
            assert!(rest.contains(told), "{begin}{line}: {said}");
            let _ = scene.run(["release", "x", "--request-id", "s"]);
            let _ = scene.run(["run", "x", "--", "true"]);
        }
    }
}

/// What another caller ended by force is lost as well, and the audit knows whose it was.
#[test]
fn release_of_a_hold_that_force_ended_table() {
    let scene = Scene::new();
    let begin = "tenure -q acquire x --owner none --request-id r >/dev/null; tenure -q force-release x --yes >/dev/null 2>&1; ";
    for (line, expected, told) in [
        ("", "80", "request id r was ended by another caller at"),
        (
            "tenure -q run x -- true; ",
            "80",
            "the work went on without it",
        ),
        (
            "tenure -q acquire x --owner none --request-id s >/dev/null; tenure -q release x --request-id s >/dev/null; ",
            "80",
            "was ended by another caller",
        ),
        (
            "tenure -q acquire x --owner none --request-id r >/dev/null; tenure -q release x --request-id r >/dev/null; ",
            "0",
            "nothing to release",
        ),
    ] {
        let line = format!("{begin}{line}tenure release x --request-id r; echo $?");
        let said = shell(&scene, "bash", &line);
        assert_eq!(said.lines().next(), Some(expected), "{line}: {said}");
        assert!(said.contains(told), "{line}: {said}");
        let other = shell(
            &scene,
            "bash",
            "tenure -q release x --request-id other 2>/dev/null; echo $?",
        );
        assert_eq!(other.trim(), "0", "no such hold");
    }
}

/// Who calls, and what the verbs answer: in one shell, in two calls, and inside a run with nothing inherited.
#[allow(clippy::too_many_lines, reason = "it is a table")]
#[test]
fn callers_and_verbs_table() {
    let scene = Scene::new();
    let one = "tenure -q acquire x >/dev/null 2>&1; echo $?; tenure check x --output json | grep -c mine.:true; \
               tenure -q heartbeat x >/dev/null 2>&1; echo $?; tenure -q release x >/dev/null 2>&1; echo $?";
    let nested = "tenure -q run x -- env -i PATH=\"$PATH\" TENURE_DIR=\"$TENURE_DIR\" tenure -q run -w 20s x -- true 2>/dev/null; echo $?";
    let own = scene.root().display().to_string();
    for name in [
        "sshd",
        "cron",
        "crond",
        "systemd",
        "supervisord",
        "runsv",
        "codex",
        "Runner.Worker",
        "engine",
    ] {
        named(&scene, name);
    }
    std::fs::create_dir_all(scene.path("_temp")).expect("a folder");
    let below = |parent: &str| format!("printf '%s\\n' 'sh -c \"$T\"' >call; {own}/{parent} call");
    let namespace = "unshare --kill-child=KILL --pid --fork --mount-proc";
    let mut wrong = Vec::new();
    // The caller; how it runs a text; what the four verbs of one shell say; what acquire and release in two calls say, and
    // whether the lock is held in between.
    for (caller, runs, in_one, in_two) in [
        ("a program", "sh -c \"$T\"".to_owned(), "0 1 0 0", "0 1 6"),
        ("a terminal", "script -qec 'sh -c \"$T\"' /dev/null | tr -d '\\r'".to_owned(), "0 1 0 0", "0 1 6"),
        ("env -i", "env -i PATH=\"$PATH\" TENURE_DIR=\"$TENURE_DIR\" T=\"$T\" sh -c 'eval \"$T\"; true'".to_owned(), "0 1 0 0", "0 1 6"),
        ("an engine", below("engine"), "0 1 0 0", "0 0 0"),
        ("sshd", below("sshd"), "0 1 0 0", "2 0 0"),
        ("cron of Debian", below("cron"), "0 1 0 0", "2 0 0"),
        ("cron of busybox", below("crond"), "0 1 0 0", "2 0 0"),
        ("a service manager", below("systemd"), "0 1 0 0", "2 0 0"),
        ("supervisord", below("supervisord"), "0 1 0 0", "2 0 0"),
        ("runit", below("runsv"), "0 1 0 0", "2 0 0"),
        ("a container's first process", format!("{namespace} sh -c \"$T\""), "0 1 0 0", "2 0 0"),
        (
            "docker exec",
            format!("{namespace} sleep 20 2>/dev/null & until p=$(pgrep -P $!); do sleep 0.02; done; nsenter -t $p -p -m sh -c \"$T\"; kill -KILL $p"),
            "0 1 0 0",
            "2 0 0",
        ),
        ("a step of CI", format!("printf '%s\\n' \"$T\" >_temp/1.sh; echo 'bash _temp/1.sh' >call; {own}/Runner.Worker call"), "0 1 0 0", "0 0 0"),
        ("an agent's host", below("codex"), "0 1 0 0", "0 0 0"),
        ("a terminal server", "tmux -L $$ -f /dev/null new-session -d 'eval \"$T\" >out 2>&1; mv out done'; until [ -e done ]; do sleep 0.05; done; cat done; rm done".to_owned(), "0 1 0 0", "0 0 0"),
    ] {
        let is_root = crate::support::is_root();
        if (runs.contains("unshare") && !is_root) || (runs.contains("tmux") && !has("tmux")) {
            continue;
        }
        let run = |text: &str| {
            let said = shell(&scene, "bash", &format!("T=$0; export T; {runs}").replace("$0", &format!("'{}'", text.replace('\'', "'\\''"))));
            said.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        let mut differs = |what: &str, said: String, expected: &str| {
            if said != expected {
                wrong.push(format!("{caller}, {what}: {said} and not {expected}"));
            }
        };
        differs("in one shell", run(one), in_one);
        scene.run(["run", "--force", "--yes", "x", "--", "true"]);
        differs("inside a run", run(nested), "81");
        let (mut said, mut held) = (Vec::new(), String::new());
        for text in ["tenure -q acquire x >/dev/null 2>&1", "tenure -q release x >/dev/null 2>&1"] {
            said.push(run(&format!("{text}; echo $?")));
            if held.is_empty() {
                held = u8::from(!scene.is_free("x")).to_string();
            }
        }
        let said = format!("{} {held} {}", said[0], said[1]);
        differs("in two calls", said, in_two);
        scene.run(["run", "--force", "--yes", "x", "--", "true"]);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
