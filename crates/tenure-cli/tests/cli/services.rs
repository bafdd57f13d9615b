//! `examples/systemd` and `examples/cron`: systemd accepts the units, what they start does what they say, and its
//! sandbox forbids nothing that tenure asks of the kernel.

use crate::support::{Gate, Scene, Started, TENURE, answer, eventually};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

fn example(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    fs::read_to_string(path.join(file)).expect(file)
}

/// The text of an example, for programs and folders that are here.
fn here(scene: &Scene, file: &str) -> String {
    let state = scene.path("state");
    let program = scene.path("backup");
    example(file)
        .replace("/usr/bin/tenure", TENURE)
        .replace("/usr/local/bin/backup", program.to_str().expect("text"))
        .replace("%S/", &format!("{}/", state.display()))
        .replace("/var/lib/", &format!("{}/", state.display()))
}

fn scene() -> Scene {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("state/backup")).expect("what StateDirectory= makes");
    scene.script("backup", "#!/bin/sh\nexit 0\n");
    scene
}

/// What a unit says for a key.
fn setting(unit: &str, key: &str) -> String {
    let prefix = format!("{key}=");
    let mut found = unit.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = found.next().expect(key).to_owned();
    assert_eq!(found.next(), None, "{key} stands there once");
    value
}

/// What the unit starts, with its variables.
fn start(scene: &Scene) -> Command {
    let unit = here(scene, "systemd/backup.service");
    let line = setting(&unit, "ExecStart").replace("%n", "backup.service");
    let mut words = line.split_whitespace();
    let mut command = scene.program(words.next().expect("a program"));
    let environment = setting(&unit, "Environment");
    let (variable, value) = environment.split_once('=').expect("a variable");
    command.args(words).env(variable, value);
    command
}

/// The commands of the crontab, as cron would run them: by `sh`, with its own variables.
fn by_cron(scene: &Scene) -> Command {
    let table = here(scene, "cron/backup");
    let variables: BTreeMap<_, _> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    let jobs: Vec<_> = table
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(" tenure "))
        .collect();
    let [job] = jobs[..] else {
        panic!("one job: {table}");
    };
    let mut fields = job.split_whitespace().skip(5);
    assert_eq!(fields.next(), Some("backup"), "the user of the unit");
    let path = format!(
        "{}:{}",
        Path::new(TENURE).parent().expect("a folder").display(),
        variables["PATH"]
    );
    let mut command = scene.program("sh");
    command
        .env_clear()
        .envs(variables)
        .env("PATH", path)
        .env("HOME", scene.root())
        .args(["-c", &fields.collect::<Vec<_>>().join(" ")]);
    command
}

#[test]
fn systemd_accepts_the_units() {
    let scene = scene();
    // The program looks at the units of this machine as well, which are not ours to judge.
    let verify = |service: &str| {
        scene.write("backup.service", service);
        scene.write("backup.timer", &here(&scene, "systemd/backup.timer"));
        let mut command = scene.program("systemd-analyze");
        command
            .args(["verify", "--man=no", "./backup.service", "./backup.timer"])
            .current_dir(scene.root());
        let answer = answer(&mut command);
        let about_ours = |line: &&str| line.contains("backup");
        let said: Vec<_> = answer
            .stderr()
            .lines()
            .filter(about_ours)
            .map(str::to_owned)
            .collect();
        (answer.status().success(), said.join("\n"))
    };
    let unit = here(&scene, "systemd/backup.service");
    assert_eq!(verify(&unit), (true, String::new()));
    // The program sees a slip, though it calls that no failure.
    let (_, said) = verify(&unit.replace("KillMode=mixed", "KillMode=mixd"));
    assert!(said.contains("mixd"), "{said}");
}

#[test]
fn the_unit_and_the_crontab_exclude_each_other() {
    let scene = scene();
    let _ = answer(&mut start(&scene)).expect(0, "the unit");
    let _ = answer(&mut by_cron(&scene)).expect(0, "the job");
    let gate = Gate::new(&scene, "backup");
    scene.script("backup", &format!("#!/bin/sh\n{}", gate.script("")));
    let unit = Started::piped(&mut start(&scene));
    let _ = gate.entered();
    // The work of a second one would never end: its gate has begun, and it is closed.
    let skipped = answer(&mut by_cron(&scene)).expect(0, "skipped");
    assert_eq!(
        skipped.said().matches("backup").count(),
        0,
        "{}",
        skipped.said()
    );
    gate.open();
    let _ = unit.finish().expect(0, "the unit was left alone");
}

/// `SuccessExitStatus=` names what tenure answers, and nothing else that it could.
#[test]
fn what_is_no_failure_of_the_unit_is_what_happens() {
    let scene = scene();
    let unit = here(&scene, "systemd/backup.service");
    let mut codes = Vec::new();
    let gate = Gate::new(&scene, "backup");
    scene.script("backup", &format!("#!/bin/sh\n{}", gate.script("")));
    let running = Started::piped(&mut start(&scene));
    let _ = gate.entered();
    let line = setting(&unit, "ExecStart");
    assert!(line.contains("--wait 15m"), "{line}");
    // The wait, cut short: the last flag counts.
    let mut words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    let wait = words.iter().position(|word| word == "15m").expect("a wait");
    "0".clone_into(&mut words[wait]);
    let mut second = scene.program(&words[0]);
    second
        .args(&words[1..])
        .env("TENURE_DIR", scene.path("state/backup/locks"));
    codes.push(answer(&mut second).code());
    // As `systemctl stop` does with KillMode=mixed: to tenure alone.
    assert_eq!(setting(&unit, "KillMode"), "mixed");
    running.signal(Signal::TERM);
    codes.push(running.finish().code());
    let named: Vec<_> = setting(&unit, "SuccessExitStatus")
        .split_whitespace()
        .map(|code| code.parse::<i32>().expect("a number"))
        .collect();
    assert_eq!(named, codes);
}

/// systemd says by these variables whom its sockets and its watchdog are for.
#[test]
fn what_a_service_manager_says_to_a_run_is_said_to_its_command_table() {
    let scene = Scene::new();
    // A shell stands for systemd: it knows its own number, and becomes tenure.
    let start = "export LISTEN_PID=$$ LISTEN_FDS=1 WATCHDOG_PID=$$ OTHER_PID=$$; exec tenure run";
    let look = "test $LISTEN_PID = $$ && test $WATCHDOG_PID = $$ && test $OTHER_PID != $$ && \
                test $LISTEN_FDS = 1 && test \"$1\" = 'two words'";
    for flags in ["x --", "x --close --", "x --die-with-parent --"] {
        let line = format!("{start} {flags} sh -c \"$0\" sh 'two words'");
        let said = answer(scene.program("sh").args(["-c", &line, look]));
        let _ = said.expect(0, flags);
    }
    // With `--exec` the command is the process that was started.
    let line = format!("{start} --exec x -- sh -c 'test $LISTEN_PID = $$'");
    let _ = scene.shell(&line).expect(0, "--exec");
    // Variables of another process stay as they are.
    let line = "export LISTEN_PID=1; exec tenure run x -- sh -c 'test $LISTEN_PID = 1'";
    let _ = scene.shell(line).expect(0, "of another process");
}

/// Every system call of a set, and of the sets in it.
fn calls_of(set: &str, sets: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for name in &sets[set] {
        if name.starts_with('@') {
            calls.extend(calls_of(name, sets));
        } else {
            calls.insert(name.clone());
        }
    }
    calls
}

#[test]
fn the_sandbox_allows_every_system_call_of_a_run() {
    let scene = scene();
    let listed = answer(scene.program("systemd-analyze").arg("syscall-filter"));
    let mut sets = BTreeMap::<String, Vec<String>>::new();
    let mut set = String::new();
    for line in listed.expect(0, "the sets").stdout().lines() {
        if line.starts_with('@') {
            line.trim().clone_into(&mut set);
        } else if !line.trim().is_empty() && !line.trim().starts_with('#') {
            sets.entry(set.clone())
                .or_default()
                .push(line.trim().to_owned());
        }
    }
    let filter = setting(&example("systemd/backup.service"), "SystemCallFilter");
    let allowed = calls_of(&filter, &sets);

    // A run that waits for another one, is asked to stop while its command works, and has to kill it.
    let gate = Gate::new(&scene, "backup");
    scene.script(
        "backup",
        &format!("#!/bin/sh\n{}", gate.script("trap '' INT TERM")),
    );
    let other = scene.hold("backup", ["-q"]);
    let trace = scene.path("trace");
    let mut traced = scene.program("strace");
    traced
        .args(["-f", "-qq", "-e", "signal=none", "-o"])
        .arg(&trace)
        .args([
            TENURE,
            "run",
            "--wait",
            "30s",
            "--grace",
            "0.2s",
            "--max-runtime",
            "0.5s",
            "backup",
            "--",
        ])
        .arg(scene.path("backup"));
    let traced = Started::piped(&mut traced);
    scene.until_queued("backup", 1);
    let _ = other.open().expect(0, "the holder before it");
    let _ = traced.finish().expect(10, "it was ended");
    let text = fs::read_to_string(&trace).expect("the trace");
    let used: BTreeSet<_> = text
        .lines()
        .filter_map(|line| {
            let call = line.split_once(char::is_whitespace)?.1.trim_start();
            let name = call.split_once('(')?.0;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
        })
        .collect();
    for wanted in ["execve", "fcntl", "waitid", "kill", "prctl"] {
        assert!(used.contains(wanted), "the trace shows {wanted}: {used:?}");
    }
    let forbidden: Vec<_> = used.difference(&allowed).collect();
    assert!(forbidden.is_empty(), "{filter} forbids {forbidden:?}");
    eventually("the lock to be free", || scene.is_free("backup"));
}
