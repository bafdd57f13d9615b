//! Advice that can be typed: each command line that an answer advises works as it stands, in the folder and with the
//! environment of the call.

use super::support::{Answer, Gate, Scene, Started, answer, eventually, is_alive};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// What becomes of the holder before others ask.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Works,
    Stopped,
    Orphaned,
    /// The claim is no run.
    Detached,
}

/// A folder with a blank and a quote in its name, and no variable that names a place.
fn at(scene: &Scene, command: &mut Command) -> Answer {
    placed(scene, command);
    answer(command)
}

fn placed(scene: &Scene, command: &mut Command) {
    command
        .env_remove("TENURE_DIR")
        .env("XDG_STATE_HOME", scene.path("state"))
        .current_dir(folder(scene));
}

fn folder(scene: &Scene) -> std::path::PathBuf {
    let folder = scene.path("it's here");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The lines in an answer for people, and in the same one for programs.
fn lines_of(answer: &Answer) -> Vec<String> {
    let text = format!("{}\n{}", answer.stdout(), answer.stderr());
    // An unpaired one would turn words into commands.
    assert!(text.matches('`').count() % 2 == 0, "{text}");
    let quoted = text.split('`').skip(1).step_by(2);
    let lines = quoted.filter(|line| line.starts_with("tenure ") || line.starts_with("kill "));
    lines.map(str::to_owned).collect()
}

/// Lines that change nothing come first, and those that only fit a holder that is still there last.
fn order(line: &str) -> usize {
    let kinds = [
        " check ",
        " list ",
        "release --request-id",
        "cancel",
        "",
        "acquire",
        "kill ",
    ];
    kinds
        .iter()
        .position(|kind| !kind.is_empty() && line.contains(kind))
        .unwrap_or(4)
}

/// A holder, the questions that others ask about its lock, and lines that have to be among the advice.
struct Row {
    flags: &'static [&'static str],
    lock: &'static [&'static str],
    begins: &'static [&'static str],
    fate: Fate,
    asks: &'static [&'static [&'static str]],
    expected: &'static [&'static str],
}

const DIR: &[&str] = &["--dir", "l'x y"];
const SPRINT: &[&str] = &["--profile", "sprint", "--project-root", "."];
const RESUME: &[&str] = &["--profile", "resume", "--dir", "re sume"];
const ASKS: &[&[&str]] = &[
    &["wait", "-n"],
    &["check"],
    &["release"],
    &["force-release"],
    &["cancel", "--orphan", "--dry-run"],
    &["cancel", "--grace", "100ms"],
    &["run", "-n"],
];
const SPRINTS: &[&[&str]] = &[
    &["check"],
    &["acquire", "--session-id", "s2", "--epic-spec", "e"],
    &["force-release"],
];

const FLEET: &[&str] = &["--profile", "fleet", "--dir", "fl eet"];
const INTENT: &[&str] = &["--intent-name", "i", "--intent-version", "1"];
const FLEETS: &[&[&str]] = &[
    &["check"],
    &["release"],
    &["force-release"],
    &["cancel", "--orphan", "--dry-run"],
    &["cancel", "--grace", "100ms"],
    &["run", "-n", "--intent-name", "i", "--intent-version", "1"],
];
const SESSION: &[&str] = &["--profile", "session", "--dir", "se ssion"];
const SESSIONS: &[&[&str]] = &[
    &["check"],
    &["release"],
    &["force-release"],
    &["cancel", "--orphan", "--dry-run"],
    &["cancel", "--grace", "100ms"],
    &["run", "-n", "--run-id", "r2"],
];

const fn row(
    (flags, lock): (&'static [&'static str], &'static [&'static str]),
    fate: Fate,
    expected: &'static [&'static str],
) -> Row {
    Row {
        flags,
        lock,
        begins: &[],
        fate,
        asks: ASKS,
        expected,
    }
}

const fn sprint(fate: Fate, expected: &'static [&'static str]) -> Row {
    Row {
        begins: &["--session-id", "s1", "--epic-spec", "e"],
        asks: SPRINTS,
        ..row((SPRINT, &[]), fate, expected)
    }
}

const fn fleet(fate: Fate, expected: &'static [&'static str]) -> Row {
    Row {
        begins: INTENT,
        asks: FLEETS,
        ..row((FLEET, &["web"]), fate, expected)
    }
}

const fn session(fate: Fate, expected: &'static [&'static str]) -> Row {
    Row {
        begins: &["--run-id", "r1"],
        asks: SESSIONS,
        ..row((SESSION, &["42"]), fate, expected)
    }
}

const ROWS: [Row; 14] = {
    use Fate::{Detached, Orphaned, Stopped, Works};
    [
        row((DIR, &["j"]), Works, &["check j", "cancel j"]),
        row((DIR, &["j"]), Stopped, &["cancel --force j", "kill -CONT "]),
        row((DIR, &["j"]), Orphaned, &["cancel --orphan j"]),
        row((DIR, &["j"]), Detached, &["acquire --force --yes j"]),
        row(
            (DIR, &["--path", "a b.rs"]),
            Stopped,
            &["cancel --force --path "],
        ),
        row((DIR, &["--group", "G"]), Orphaned, &["cancel --orphan g"]),
        row(
            (RESUME, &["j"]),
            Stopped,
            &["--dir 're sume' cancel --force j"],
        ),
        row(
            (RESUME, &["j"]),
            Orphaned,
            &["--dir 're sume' cancel --orphan j"],
        ),
        sprint(
            Stopped,
            &[
                "--project-root . cancel --force sprint",
                "--project-root . force-release --yes --token ",
            ],
        ),
        sprint(Orphaned, &["--project-root . cancel --orphan sprint"]),
        fleet(
            Stopped,
            &["fleet --dir 'fl eet' cancel --force web", "kill -CONT "],
        ),
        fleet(Orphaned, &["fleet --dir 'fl eet' cancel --orphan web"]),
        session(
            Stopped,
            &["session --dir 'se ssion' cancel --force 42", "kill -CONT "],
        ),
        session(Orphaned, &["session --dir 'se ssion' cancel --orphan 42"]),
    ]
};

impl Row {
    fn words(&self, verb: &[&str], more: &[&str]) -> Vec<String> {
        let words = [self.flags, verb, self.lock, more].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// The holder as it is when others ask, and what ends its command.
    fn holder(&self, scene: &Scene) -> (Option<Started>, Gate) {
        let gate = Gate::new(scene, "held");
        if self.fate == Fate::Detached {
            let detached = self.words(&["acquire", "--owner", "none", "--ttl", "5m"], &[]);
            at(scene, &mut scene.tenure(detached)).expect(0, "acquired");
            return (None, gate);
        }
        let script = gate.script("");
        let command = [self.begins, &["--", "sh", "-c", &script]].concat();
        let mut run = scene.tenure(self.words(&["-q", "run"], &command));
        placed(scene, &mut run);
        let holder = Started::new(&mut run);
        gate.entered();
        eventually("its command to be named", || {
            let words = [self.flags, &["list", "--output", "json"]].concat();
            let listed = at(scene, &mut scene.tenure(words)).json();
            listed["data"]["locks"][0]["holder"]["command_pid"].is_u64()
        });
        match self.fate {
            Fate::Stopped => {
                holder.signal(Signal::STOP);
                eventually("it to be stopped", || is_stopped(holder.pid()));
            }
            Fate::Orphaned => {
                holder.signal(Signal::KILL);
                eventually("it to be dead", || !is_alive(holder.pid()));
            }
            Fate::Works | Fate::Detached => {}
        }
        (Some(holder), gate)
    }
}

#[test]
fn each_line_that_an_answer_advises_runs_as_it_stands() {
    for row in &ROWS {
        let here = format!("{:?} {:?} {:?}", row.flags, row.lock, row.fate);
        let scene = Scene::new();
        let (_holder, gate) = row.holder(&scene);
        let mut advised = Vec::new();
        let is_group = row.lock.first() == Some(&"--group");
        for ask in row.asks.iter().filter(|ask| !is_group || ask[0] != "run") {
            let more = if ask[0] == "run" {
                &["--", "true"][..]
            } else {
                &[]
            };
            let said = at(&scene, &mut scene.tenure(row.words(ask, more)));
            advised.extend(lines_of(&said));
        }
        advised.sort_by_key(|line| order(line));
        advised.dedup();
        for expected in row.expected {
            let is_there = advised.iter().any(|line| line.contains(expected));
            assert!(is_there, "{here}: {expected} in {advised:#?}");
        }
        for line in &advised {
            let done = at(&scene, scene.program("sh").args(["-c", line]));
            let code = done.code();
            let fits = !matches!(code, 2 | 126 | 127) || line.starts_with("kill ");
            assert!(fits, "{here}: {line}: {code}: {}", done.stderr());
        }
        gate.open();
    }
}

/// Answers beside those about one holder. The script leaves its children behind, and `$T` is tenure with the flags of the
/// place.
#[test]
fn each_line_of_other_answers_runs_as_it_stands_table() {
    let held = "$T -q acquire j --owner none --ttl 5m --request-id r1 >/dev/null";
    for (what, script, expected) in [
        (
            "a caller that waits for itself",
            "$T -q acquire j >/dev/null; $T run j --wait forever -- true; :",
            "release j --request-id req_",
        ),
        (
            "a holder that is ending",
            "$T -q run j --grace 30s -- sh -c 'trap \"\" INT TERM; >up; sleep 600' >/dev/null 2>&1 & \
             until [ -e up ]; do sleep 0.02; done; rm up; $T -q cancel j >/dev/null; $T run -n j -- true",
            "cancel j --grace 0s",
        ),
        (
            "one holder of several",
            "for i in 1 2; do $T -q acquire j --slots 2 --owner none --request-id r$i >/dev/null; done; \
             $T force-release j --request-id r1 --yes >/dev/null",
            "check j",
        ),
        (
            "a waiter that is to be released",
            &format!(
                "{held}; $T -q run j --request-id w1 --wait 60s -- true >/dev/null 2>&1 & \
                 until $T check j --output json | grep -q w1; do sleep 0.02; done; $T release j --request-id w1"
            ),
            "cancel j --request-id w1",
        ),
        (
            "free locks that are not shown",
            "$T -q run k -- true; $T -q acquire j --owner none >/dev/null; $T list",
            "list --all",
        ),
        (
            "a record that cannot be read",
            "$T -q run j -- true; echo x >\"$D/j.tenure\"; $T run j -n -- true",
            "force-release j",
        ),
        (
            "what doctor finds",
            "$T -q run k -- true; echo x >\"$D/k.tenure\"; $T doctor | sed -n 's/.*(\\(tenure [^)]*\\)).*/`\\1`/p'",
            "check k",
        ),
        (
            "a line for the shell",
            "$T run j -- 'echo a && echo b' 2>&1 | sed 's/needs --shell: \\(.*\\)/`\\1`/'",
            "run --shell j -- 'echo a && echo b'",
        ),
        (
            "a line for the shell, of a group",
            "$T run --group 'G h/2' -- 'echo $TENURE_NAME && echo b' 2>&1 | sed 's/needs --shell: \\(.*\\)/`\\1`/'",
            "run --shell --group 'g h/2' -- ",
        ),
    ] {
        let scene = Scene::new();
        let mut shell = scene.program("bash");
        let script = format!(
            "D=\"l'x y\"; T() {{ tenure --dir \"$D\" \"$@\"; }}; {}",
            script.replace("$T ", "T ")
        );
        let said = at(&scene, shell.args(["-c", &script]));
        let lines = lines_of(&said);
        let line = lines.iter().find(|line| line.contains(expected));
        let line = line.unwrap_or_else(|| panic!("{what}: {lines:#?} in {}", said.said()));
        let done = at(&scene, scene.program("sh").args(["-c", line]));
        assert!(
            !matches!(done.code(), 2 | 126 | 127),
            "{what}: {line}: {}",
            done.said()
        );
        if what.ends_with("a group") {
            assert_eq!(done.stdout(), "g=20h=2f2\nb\n", "{line}: the same group");
        }
        let end =
            "for i in 1 2 3; do tenure --dir \"l'x y\" -q cancel j --grace 0s; sleep 0.1; done";
        let _ = at(&scene, scene.program("sh").args(["-c", end]));
    }
}

/// Whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[test]
fn a_line_written_inside_a_run_works_outside_of_it() {
    let scene = Scene::new();
    let inner = "tenure -q acquire k --owner none --ttl 5m >/dev/null; tenure run -n k -- true";
    let words = ["--dir", "l'x y", "run", "outer", "--", "sh", "-c", inner];
    let said = at(&scene, &mut scene.tenure(words)).expect(4, "the inner run is refused");
    let lines = lines_of(&said);
    assert!(!lines.is_empty(), "{}", said.stderr());
    for line in lines {
        let done = at(
            &scene,
            scene.program("sh").args(["-c", &format!("cd / && {line}")]),
        );
        assert_eq!(done.code(), 4, "{line}: it is held: {}", done.stdout());
    }
}

#[test]
fn a_program_that_is_not_on_the_path_advises_its_own_path() {
    let scene = Scene::new();
    let mut refused = Vec::new();
    for words in [
        &["acquire", "j", "--owner", "none", "--ttl", "5m"][..],
        &["run", "-n", "j", "--", "true"],
    ] {
        let mut call = scene.tenure(words);
        refused = lines_of(&answer(call.env("PATH", "/usr/bin:/bin")));
        if words[0] == "run" {
            let said = answer(scene.tenure(words).env("PATH", "/usr/bin:/bin")).stderr();
            let line = said.split('`').nth(1).expect("advice").to_owned();
            let mut shell = scene.program("sh");
            let done = answer(shell.args(["-c", &line]).env("PATH", "/usr/bin:/bin"));
            assert_eq!(done.code(), 4, "{line}: {}", done.stderr());
        }
    }
    assert_eq!(
        refused,
        Vec::<String>::new(),
        "no bare name is advised there"
    );
}

#[test]
fn no_answer_writes_such_a_line_by_hand() {
    let known = ["args/", "verb/", "command/man.rs"];
    let mut by_hand = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !["tests", "target", "benches", "examples"]
                    .iter()
                    .any(|it| *it == name)
                {
                    folders.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(&path).expect("a source");
            let code = text
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            let code: Vec<_> = code
                .lines()
                .filter(|it| !it.trim_start().starts_with("//"))
                .collect();
            let code = code.join(" ");
            // A value in a line that no function has quoted: `tenure VERB … {value}`.
            let is_line = |part: &&str| {
                let verb = part.strip_prefix("tenure ");
                let has_verb = verb.is_some_and(|verb| verb.starts_with(char::is_lowercase));
                has_verb && part.contains('{') && !part.contains(['"', ';'])
            };
            let lines = code.split('`').filter(is_line);
            let mut formats = code.split("format!(\"tenure ").skip(1);
            let has_verb = |rest: &str| rest.starts_with(char::is_lowercase);
            let is_known = known.iter().any(|it| shown.contains(it));
            if !is_known && (lines.count() > 0 || formats.any(has_verb)) {
                by_hand.push(shown);
            }
        }
    }
    assert_eq!(
        by_hand,
        Vec::<String>::new(),
        "tenure_store::advice writes them"
    );
}
