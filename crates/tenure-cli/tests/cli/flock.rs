//! `tenure flock` beside the flock(1) of util-linux: the same answers to the same words, and each
//! keeps the other out.

use crate::support::{
    Answer, BOUND, Gate, Scene, Started, TENURE, answer, children, eventually, is_alive,
    read_number, send, state, throughout, timed,
};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

const BOTH: [Side; 2] = [Side::Ours, Side::Theirs];

/// Fails the test where there is nothing to compare with.
fn need_flock() {
    let said = Command::new("flock").arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(
        said.as_ref().is_ok_and(|said| said.contains("util-linux")),
        "flock of util-linux is missing and this test is nothing without it; run scripts/test, \
         which installs it: {said:?}"
    );
}

/// A folder with the program under the name `flock`, where it is asked for.
fn named(scene: &Scene) -> PathBuf {
    let folder = scene.path("bin");
    if !folder.exists() {
        std::fs::create_dir(&folder).expect("a folder");
        symlink(TENURE, folder.join("flock")).expect("a link");
    }
    folder
}

impl Side {
    /// The program, in the test's folder.
    fn flock<I, S>(self, scene: &Scene, words: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = match self {
            Self::Ours => scene.program(named(scene).join("flock").to_str().expect("a path")),
            Self::Theirs => scene.program("flock"),
        };
        command.args(words).current_dir(scene.root());
        command
    }

    /// A shell in the test's folder that knows this one as `flock`.
    fn shell(self, scene: &Scene, line: &str) -> Command {
        let mut command = scene.program("sh");
        let line = match self {
            Self::Ours => format!("PATH={}:$PATH; {line}", named(scene).display()),
            Self::Theirs => line.to_owned(),
        };
        command.args(["-c", &line]).current_dir(scene.root());
        command
    }

    fn run(self, scene: &Scene, words: &[&str]) -> Answer {
        answer(&mut self.flock(scene, words))
    }

    /// Holds `lock` until the gate is opened.
    fn hold(self, scene: &Scene, flags: &[&str]) -> (Started, Gate) {
        let gate = Gate::new(scene, "flock");
        let script = gate.script("");
        let command = ["lock", "sh", "-c", &script];
        let mut command = self.flock(scene, flags.iter().chain(&command));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Started::new(&mut command);
        gate.entered();
        (started, gate)
    }
}

/// What can be told about a call from outside.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    says_why: bool,
    /// Every name in the folder, and its mode.
    left: Vec<(String, u32)>,
}

/// Calls one of them in a folder that has a little of everything.
fn outcome(side: Side, words: &[&str]) -> Outcome {
    let scene = Scene::new();
    let home = scene.path("home");
    std::fs::create_dir_all(home.join("dir")).expect("folders");
    for (name, mode, content) in [
        ("script", 0o755, "echo script $0 $*\n"),
        ("not-runnable", 0o644, ""),
        ("read-only", 0o444, ""),
    ] {
        std::fs::write(home.join(name), content).expect("a file");
        std::fs::set_permissions(home.join(name), std::fs::Permissions::from_mode(mode))
            .expect("rights");
    }
    symlink("not-runnable", home.join("link")).expect("a link");
    symlink("target", home.join("dangling")).expect("a link");
    let mut command = side.flock(&scene, words);
    command
        .current_dir(&home)
        .env("SHELL", "/bin/sh")
        .env("PATH", format!("{}:/usr/bin:/bin", home.display()))
        .stdin(std::fs::File::open(home.join("read-only")).expect("a file"));
    let answer = answer(&mut command);
    let mut left: Vec<_> = std::fs::read_dir(&home)
        .expect("the folder")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("its facts").mode();
            (entry.file_name().to_string_lossy().into_owned(), mode)
        })
        .collect();
    left.sort();
    let stdout = answer
        .stdout()
        .replace(home.to_str().expect("text"), "HOME");
    Outcome {
        code: answer.status().code(),
        // On a terminal theirs says it before the command, in a pipe behind it.
        stdout: in_order(&stdout),
        says_why: !answer.stderr().is_empty(),
        left,
    }
}

/// The lines in one order, and each time as if no time had passed.
fn in_order(stdout: &str) -> String {
    let mut lines: Vec<_> = stdout
        .lines()
        .map(|line| match line.split_once(" took ") {
            Some((before, _)) => format!("{before} took no time"),
            None => line.to_owned(),
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Calls that both answer in the same way, in everything that can be seen from outside.
const ALIKE: &[&[&str]] = &[
    // What is missing.
    &[],
    &["-x"],
    &["--"],
    &["-n", "--"],
    &["-E"],
    &["-w"],
    &["--timeout"],
    &["f", "-c"],
    &["f", "-c", "echo", "hi"],
    &["f", "--command"],
    // Where options end.
    &["--", "f", "echo", "hi"],
    &["-x", "--", "f", "echo", "hi"],
    &["f", "--", "echo"],
    &["f", "-n", "echo"],
    &["f", "--verbose", "echo"],
    &["-c", "echo hi", "f"],
    &["--command", "echo hi", "f"],
    &["f", "--command=echo hi"],
    &["f", "-ca"],
    &["-", "echo", "hi"],
    &["9", "echo", "hi"],
    // How options are written.
    &["-xn", "f", "echo", "hi"],
    &["-nw5", "f", "echo", "hi"],
    &["-snE5", "f", "echo", "hi"],
    &["-su", "f", "echo", "hi"],
    &["--e", "f", "echo", "hi"],
    &["--nonblock", "f", "echo", "hi"],
    &["--nb", "f", "echo", "hi"],
    &["--no-f", "f", "echo", "hi"],
    &["--w", "1", "f", "echo", "hi"],
    &["--t=1", "f", "echo", "hi"],
    &["--cl", "f", "echo", "hi"],
    &["--conflict=7", "f", "echo", "hi"],
    &["--n", "f", "echo", "hi"],
    &["--c", "f", "echo", "hi"],
    &["--ve"],
    &["--=", "f", "echo"],
    &["--foo", "f", "echo"],
    &["--shared=1", "f", "echo"],
    &["-Z", "f", "echo"],
    &["-xZ", "f", "echo"],
    &["-?", "f", "echo"],
    &["-1"],
    // Numbers.
    &["-E", "0", "f", "echo", "hi"],
    &["-E", "255", "f", "echo", "hi"],
    &["-E", "+5", "f", "echo", "hi"],
    &["-E", " 5", "f", "echo", "hi"],
    &["-E", "256", "f", "echo", "hi"],
    &["-E", "-1", "f", "echo", "hi"],
    &["-E", "abc", "f", "echo", "hi"],
    &["-E", "", "f", "echo", "hi"],
    &["-E", "5 ", "f", "echo", "hi"],
    &["-E", "0x10", "f", "echo", "hi"],
    &["-E", "99999999999", "f", "echo", "hi"],
    &["-E", "300", "-h"],
    &["-w", "0", "f", "echo", "hi"],
    &["-w", "1.", "f", "echo", "hi"],
    &["-w", ".5", "f", "echo", "hi"],
    &["-w", "1e3", "f", "echo", "hi"],
    &["-w", "+1", "f", "echo", "hi"],
    &["-w", " 1", "f", "echo", "hi"],
    &["-w", "-0", "f", "echo", "hi"],
    &["-w", "1e18", "f", "echo", "hi"],
    &["-w", "0.0000000001", "f", "echo", "hi"],
    &["-w", "", "f", "echo", "hi"],
    &["-w", ".", "f", "echo", "hi"],
    &["-w", "abc", "f", "echo", "hi"],
    &["-w", "1.5x", "f", "echo", "hi"],
    &["-w", "1s", "f", "echo", "hi"],
    &["-w", "1,5", "f", "echo", "hi"],
    &["-w", "1 ", "f", "echo", "hi"],
    &["-w", "-1", "9"],
    &["-n", "-w", "-1", "9"],
    // Descriptors.
    &["0"],
    &["+0"],
    &[" 0"],
    &["-s", "0"],
    &["-u", "0"],
    &["-n", "0"],
    &["-F", "0"],
    &["-o", "0"],
    &["--verbose", "0"],
    &["99"],
    &["-u", "99"],
    &["--", "-1"],
    &["--", "-0"],
    &["99x"],
    &["0x1"],
    &["f"],
    &["-u", "f"],
    &[""],
    &["+ 0"],
    &["4294967296"],
    &["99999999999999999999"],
    // Files.
    &["f", "echo", "hi"],
    &["-s", "f", "echo", "hi"],
    &["-u", "f", "echo", "hi"],
    &["dir", "echo", "hi"],
    &["dir/", "echo", "hi"],
    &["-s", "dir", "echo", "hi"],
    &["new/", "echo", "hi"],
    &["/", "echo", "hi"],
    &["read-only", "echo", "hi"],
    &["link", "echo", "hi"],
    &["dangling", "echo", "hi"],
    &["f/g", "echo", "hi"],
    &["/nonexistent/f", "echo", "hi"],
    &["", "echo", "hi"],
    // Commands.
    &["f", "-c", "echo $0 $#"],
    &["f", "--command", "echo hi"],
    &["f", "-c", ""],
    &["f", "-c", "exit 3"],
    &["f", "sh", "-c", "exit 255"],
    &["f", "sh", "-c", "kill -9 $$"],
    &["f", "sh", "-c", "kill -TERM $$"],
    &["-F", "f", "-c", "echo $0 $#"],
    &["-F", "f", "sh", "-c", "exit 3"],
    &["f", "nonexistent"],
    &["-F", "f", "nonexistent"],
    &["f", ""],
    &["f", "./dir"],
    &["f", "./not-runnable"],
    &["-F", "f", "./not-runnable"],
    &["f", "script", "a", "b c"],
    &["f", "./script", "a", "b c"],
    &["-F", "f", "./script", "a"],
    &["-o", "f", "echo", "hi"],
    &["-F", "-o", "f", "echo", "hi"],
    &["-o", "-F"],
    &["--verbose", "f", "sh", "-c", "echo hi; exit 3"],
    &["--verbose", "f", "-c", "echo hi"],
    // The descriptors that the command has, and the number of the lock's.
    &["f", "sh", "-c", "readlink /proc/$$/fd/3"],
    &["-F", "f", "sh", "-c", "readlink /proc/$$/fd/3"],
    &["-o", "f", "sh", "-c", "readlink /proc/$$/fd/3"],
    &["f", "cmp", "/dev/null", "-"],
];

#[test]
fn it_answers_as_the_one_of_util_linux_does() {
    need_flock();
    let different: Vec<_> = ALIKE
        .iter()
        .map(|words| {
            (
                words,
                outcome(Side::Ours, words),
                outcome(Side::Theirs, words),
            )
        })
        .filter(|(_, ours, theirs)| ours != theirs)
        .collect();
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn a_timer_that_cannot_be_is_refused_before_a_file_is_made() {
    for seconds in ["-1", "-0.5", "inf", "nan", "1e400", "1e19"] {
        let ours = outcome(Side::Ours, &["-w", seconds, "f", "echo", "hi"]);
        assert_eq!((ours.code, ours.says_why), (Some(71), true), "{seconds}");
        assert!(ours.left.iter().all(|(name, _)| name != "f"), "{seconds}");
        need_flock();
        let theirs = outcome(Side::Theirs, &["-w", seconds, "f", "echo", "hi"]);
        assert_eq!(theirs.code, ours.code, "{seconds}");
    }
}

#[test]
fn both_names_are_one_program_and_the_help_has_the_name_it_was_called_by() {
    let scene = Scene::new();
    let by_name = Side::Ours.run(&scene, &["--help"]).expect(0, "help");
    let by_verb = scene.run(["flock", "--help"]).expect(0, "help");
    assert!(by_name.stdout().contains("\n  flock [OPTIONS] FILE"));
    assert!(by_verb.stdout().contains("\n  tenure flock [OPTIONS] FILE"));
    let through_help = scene.run(["help", "flock"]).expect(0, "help of the verb");
    assert_eq!(through_help.stdout().trim(), by_verb.stdout().trim());
    let version = Side::Ours.run(&scene, &["--version"]).expect(0, "version");
    assert!(version.stdout().starts_with("flock from tenure "));
    let hint = Side::Ours.run(&scene, &["-Z"]).expect(64, "no such option");
    assert!(hint.stderr().contains("Try 'flock --help'"));
    let hint = scene.run(["flock", "-Z"]).expect(64, "no such option");
    assert!(hint.stderr().contains("Try 'tenure flock --help'"));
    let run = scene.run(["flock", "-x", "--", "/", "echo", "hi"]);
    assert_eq!(run.expect(0, "a call of the verb").stdout(), "hi\n");
}

#[test]
fn nothing_of_ours_has_a_say_in_it() {
    let scene = Scene::new();
    scene.write("tenure.toml", "this is no TOML");
    let mut command = Side::Ours.flock(&scene, ["lock", "sh", "-c", "env"]);
    command
        .env("TENURE_OUTPUT", "no format")
        .env("TENURE_DIR", "/nonexistent");
    let environment = answer(&mut command)
        .expect(0, "flock without our settings")
        .stdout();
    for ours in [
        "TENURE_NAME",
        "TENURE_TOKEN",
        "TENURE_HELD",
        "TENURE_REQUEST_ID",
    ] {
        assert!(!environment.contains(ours), "{environment}");
    }
    assert!(!scene.locks().exists(), "it keeps no records");
    for words in [
        &["-q", "flock", "lock", "true"][..],
        &["--dir", "d", "flock", "9"],
    ] {
        let refused = scene.run(words).expect(2, "our flags mean nothing to it");
        assert!(refused.stderr().contains(words[0]), "{}", refused.stderr());
    }
}

#[test]
fn each_keeps_the_other_out_and_shares_with_it() {
    need_flock();
    for holder in BOTH {
        for (held, wanted, conflict) in [
            ("-x", "-x", true),
            ("-x", "-s", true),
            ("-s", "-x", true),
            ("-s", "-s", false),
            ("-e", "--shared", true),
            ("-x", "-u", false),
        ] {
            let scene = Scene::new();
            let (started, gate) = holder.hold(&scene, &[held]);
            for contender in BOTH {
                for (flags, code, said) in [
                    (&["-n"][..], 1, ""),
                    (&["-n", "-E", "123"], 123, ""),
                    (&["-F", "-n", "-E", "123"], 123, ""),
                    (&["-n", "-E", "0"], 0, ""),
                    (&["-w", "0"], 1, ""),
                    (&["-w", "0.05", "-E", "5"], 5, ""),
                    (&["-F", "-w", ".05"], 1, ""),
                    (&["-n", "-w", "60"], 1, ""),
                    (&["-n", "--verbose"], 1, "flock: failed to get lock\n"),
                    (
                        &["-w", "0.05", "--verbose"],
                        1,
                        "flock: timeout while waiting to get lock\n",
                    ),
                ] {
                    let words = [&[wanted], flags, &["lock", "echo", "mine"]].concat();
                    let answer = contender.run(&scene, &words);
                    let why = format!("{holder:?} {held}, {contender:?} {words:?}");
                    if conflict {
                        let answer = answer.expect(code, &why);
                        assert_eq!(
                            (answer.stdout(), answer.stderr()),
                            (String::new(), said.into()),
                            "{why}"
                        );
                    } else {
                        let answer = answer.expect(0, &why);
                        assert!(answer.stdout().contains("mine\n"), "{why}");
                    }
                }
            }
            gate.open();
            let _ = started.finish().expect(0, "the holder");
            for contender in BOTH {
                let _ = contender
                    .run(&scene, &["-n", "lock", "true"])
                    .expect(0, "free again");
            }
        }
    }
}

#[test]
fn a_wait_ends_with_the_lock_or_with_the_time() {
    need_flock();
    for (holder, waiter) in [
        (Side::Ours, Side::Ours),
        (Side::Ours, Side::Theirs),
        (Side::Theirs, Side::Ours),
    ] {
        let scene = Scene::new();
        let (held, gate) = holder.hold(&scene, &["-s"]);
        let (late, span) = timed(|| {
            waiter.run(
                &scene,
                &[
                    "--timeout",
                    "0.3",
                    "--conflict-exit-code",
                    "5",
                    "lock",
                    "true",
                ],
            )
        });
        let _ = late.expect(5, "too late");
        assert!(
            span >= Duration::from_millis(300) && span < BOUND,
            "it waited for as long as it was told: {span:?}"
        );
        let waiting: Vec<_> = [
            &["lock"][..],
            &["-w", "60", "lock"],
            &["-F", "-w60", "lock"],
        ]
        .into_iter()
        .map(|flags| {
            let command = ["echo", "had it"];
            let mut command = waiter.flock(&scene, flags.iter().chain(&command));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Started::new(&mut command)
        })
        .collect();
        for waiting in &waiting {
            eventually("it to sleep", || state(waiting.pid()) == Some('S'));
        }
        let mut waiting = waiting;
        throughout(Duration::from_millis(50), "they wait", || {
            waiting.iter_mut().all(|waiting| !waiting.has_ended())
        });
        // A stop and a signal that means nothing cost no waiter its wait.
        for waiting in &waiting {
            send(waiting.pid(), Signal::STOP);
            send(waiting.pid(), Signal::CONT);
            send(waiting.pid(), Signal::WINCH);
        }
        gate.open();
        for waiting in waiting {
            let answer = waiting.finish().expect(0, "the lock came");
            assert_eq!(answer.stdout(), "had it\n");
        }
        let _ = held.finish().expect(0, "the holder");
    }
}

#[test]
fn a_descriptor_of_the_shell_is_locked_and_stays_so() {
    need_flock();
    let script = "(
        flock -n 9 || exit 1
        flock -n lock true && exit 2
        flock -n 9 || exit 3
        flock -s 9 && flock -sn lock true || exit 4
        flock -n lock true && exit 5
        flock -u 9 && flock -n lock echo free
    ) 9>lock && flock -n lock echo after";
    for side in BOTH {
        let scene = Scene::new();
        let answer = answer(&mut side.shell(&scene, script)).expect(0, &format!("{side:?}"));
        assert_eq!(answer.stdout(), "free\nafter\n", "{side:?}");
        let unheard = answer_of(side, &scene, "flock --help >/dev/full").expect(1, "no room");
        assert!(unheard.stderr().contains("write error"), "{side:?}");
        let unheard = "flock --verbose lock true >/dev/full";
        let unheard = answer_of(side, &scene, unheard).expect(1, "no room");
        assert!(unheard.stderr().contains("write error"), "{side:?}");
        let held = "exec 9>lock; flock 9; exec 8<lock; flock -n 8";
        let refused = answer_of(side, &scene, held);
        assert_eq!(
            refused.code(),
            1,
            "another open file of it is another owner"
        );
        for line in ["flock 0 <&-", "flock -n 1 >&-", "flock 7"] {
            let refused = answer_of(side, &scene, line).expect(65, line);
            assert!(refused.stderr().contains("Bad file descriptor"), "{line}");
        }
    }
}

fn answer_of(side: Side, scene: &Scene, line: &str) -> Answer {
    answer(&mut side.shell(scene, line))
}

/// A script that locks itself, as flock(1)'s page shows it.
#[test]
fn a_script_can_put_itself_under_a_lock() {
    let scene = Scene::new();
    let content = "#!/bin/sh\n\
        [ \"${FLOCKER}\" != \"$0\" ] && exec env FLOCKER=\"$0\" flock -en \"$0\" \"$0\" \"$@\" || :\n\
        flock -n \"$0\" true && echo not alone\n\
        echo $# \"$1\"\n";
    scene.script("job", content);
    for side in BOTH {
        let answer = answer_of(side, &scene, "./job 'a b' c").expect(0, "the script");
        assert_eq!(answer.stdout(), "2 a b\n", "{side:?}");
    }
}

#[test]
fn what_the_command_leaves_behind_holds_the_lock_unless_it_was_closed() {
    need_flock();
    for side in BOTH {
        for (flag, holds) in [("-x", true), ("-o", false), ("-F", true)] {
            let scene = Scene::new();
            let gate = Gate::new(&scene, "left");
            let line = format!("({}) >/dev/null 2>&1 &", gate.script(""));
            let left = side.run(&scene, &[flag, "lock", "sh", "-c", &line]);
            let _ = left.expect(0, "the command has ended");
            gate.entered();
            let expected = i32::from(holds);
            for contender in BOTH {
                let _ = contender
                    .run(&scene, &["-n", "lock", "true"])
                    .expect(expected, &format!("{side:?} {flag}, {contender:?}"));
            }
            gate.open();
            eventually("the lock to be free", || {
                side.run(&scene, &["-n", "lock", "true"]).code() == 0
            });
        }
    }
}

#[test]
fn the_command_is_a_child_or_takes_our_place() {
    need_flock();
    for side in BOTH {
        for (flag, in_place) in [("-x", false), ("-o", false), ("-F", true)] {
            let scene = Scene::new();
            let (started, gate) = side.hold(&scene, &[flag]);
            let command = gate.entered();
            assert_eq!(command == started.pid(), in_place, "{side:?} {flag}");
            if !in_place {
                assert_eq!(children(started.pid()), [command], "{side:?} {flag}");
            }
            gate.open();
            let _ = started.finish().expect(0, "the command");
        }
    }
}

/// Signals mean to it what they mean to any process: it passes nothing on.
#[test]
fn it_dies_by_a_signal_and_the_command_goes_on_with_the_lock() {
    need_flock();
    for side in BOTH {
        let scene = Scene::new();
        let (mut started, gate) = side.hold(&scene, &[]);
        for flags in [&[][..], &["-w", "60"]] {
            let words = flags.iter().chain(&["lock", "true"]);
            let mut waiting = Started::new(&mut side.flock(&scene, words));
            eventually("it to sleep", || state(waiting.pid()) == Some('S'));
            waiting.signal(Signal::TERM);
            assert_eq!(waiting.end().signal(), Some(15), "{side:?} {flags:?}");
        }
        started.signal(Signal::TERM);
        assert_eq!(started.end().signal(), Some(15), "{side:?}");
        assert!(is_alive(gate.entered()), "the command was told nothing");
        let _ = side
            .run(&scene, &["-n", "lock", "true"])
            .expect(1, "it still has the lock");
        gate.open();
        eventually("the lock to be free", || {
            side.run(&scene, &["-n", "lock", "true"]).code() == 0
        });
    }
}

/// The signals that a command finds ignored and blocked, as /proc shows them. Two of those that
/// no program may use are the C library's, which leaves them ignored in some of its children.
fn signals_of(command: &mut Command) -> Vec<u64> {
    let told = answer(command).expect(0, "a look at the signals");
    let of_library = 0b11 << 31;
    let sets: Vec<_> = told
        .stdout()
        .lines()
        .filter_map(|line| line.strip_prefix("Sig"))
        .filter(|line| line.starts_with("Blk") || line.starts_with("Ign"))
        .filter_map(|line| u64::from_str_radix(line.split_once('\t')?.1, 16).ok())
        .map(|set| set & !of_library)
        .collect();
    assert_eq!(sets.len(), 2, "{}", told.said());
    sets
}

#[test]
fn the_command_finds_signals_as_they_were() {
    need_flock();
    let scene = Scene::new();
    let ignoring: &[&[i32]] = &[
        &[],
        &[libc::SIGPIPE],
        &[libc::SIGCHLD],
        &[libc::SIGINT, libc::SIGALRM, libc::SIGPIPE],
    ];
    let blocking: &[&[i32]] = &[&[], &[libc::SIGUSR2, libc::SIGTERM]];
    for ignored in ignoring {
        for blocked in blocking {
            for flags in [
                &[][..],
                &["-F"],
                &["-w", "60"],
                &["-F", "-w", "60"],
                &["-o"],
            ] {
                let [ours, theirs] = BOTH.map(|side| {
                    let words = flags.iter().chain(&["lock", "cat", "/proc/self/status"]);
                    let mut command = side.flock(&scene, words);
                    with_signals(&mut command, ignored, blocked);
                    signals_of(&mut command)
                });
                assert_eq!(
                    ours, theirs,
                    "{ignored:?} ignored, {blocked:?} blocked, {flags:?}"
                );
            }
        }
    }
}

fn with_signals(command: &mut Command, ignored: &'static [i32], blocked: &'static [i32]) {
    #[allow(unsafe_code, reason = "only between fork and exec can this be set")]
    // SAFETY: calls that may be made between fork and exec, on a set of their own.
    unsafe {
        command.pre_exec(move || {
            for number in ignored {
                libc::signal(*number, libc::SIG_IGN);
            }
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for number in blocked {
                libc::sigaddset(&raw mut set, *number);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Locks of fcntl(2) stand beside those of flock(2), and exclude one another.
#[test]
fn fcntl_locks_are_a_kind_of_their_own() {
    let scene = Scene::new();
    let (held, gate) = Side::Ours.hold(&scene, &["--fcntl"]);
    for (flags, code) in [
        (&["--fcntl", "-n"][..], 1),
        (&["--fcntl", "-sn", "-E7"], 7),
        (&["--fcntl", "-w", "0.05"], 1),
        (&["-n"], 0),
    ] {
        let words = [flags, &["lock", "true"]].concat();
        let _ = Side::Ours
            .run(&scene, &words)
            .expect(code, &format!("{words:?}"));
    }
    gate.open();
    let _ = held.finish().expect(0, "the holder");
    let (held, gate) = Side::Ours.hold(&scene, &["--fcntl", "-s"]);
    for (flags, code) in [("-sn", 0), ("-xn", 1)] {
        let words = ["--fcntl", flags, "lock", "true"];
        let _ = Side::Ours.run(&scene, &words).expect(code, flags);
    }
    gate.open();
    let _ = held.finish().expect(0, "the holder");
    let _ = Side::Ours
        .run(&scene, &["--fcntl", "-x", ".", "true"])
        .expect(65, "a directory cannot be opened for writing");
    let line = "exec 9<lock; flock --fcntl -s 9 && flock --fcntl 9";
    let _ = answer_of(Side::Ours, &scene, line).expect(65, "nor locked by who cannot write");
}

/// On some network file systems an exclusive lock needs a file that can be written.
#[test]
fn a_file_that_must_be_writable_to_be_locked_is_opened_again() {
    let scene = Scene::new();
    let flock = named(&scene).join("flock");
    let log = scene.path("log");
    for (code, flags, fault, opened) in [
        (0, "-x", "EIO:when=1", 2),
        (0, "-x", "EBADF:when=1", 2),
        (65, "-x", "EIO", 2),
        (65, "-s", "EBADF", 1),
        (65, "-x", "EINVAL", 1),
        (71, "-x", "ENOLCK", 1),
        (71, "-x", "ENOMEM", 1),
    ] {
        let mut command = scene.program("strace");
        command
            .args(["-qq", "-e", &format!("inject=flock:error={fault}")])
            .args(["-P", scene.path("lock").to_str().expect("text"), "-o"])
            .args([log.as_path(), flock.as_path()])
            .args([flags, scene.path("lock").to_str().expect("text"), "true"]);
        let _ = answer(&mut command).expect(code, fault);
        let calls = std::fs::read_to_string(&log).expect("what strace saw");
        let opens = calls
            .lines()
            .filter(|line| line.starts_with("open"))
            .count();
        assert_eq!(opens, opened, "{fault}: {calls}");
        assert_eq!(calls.contains("O_RDWR"), opened == 2, "{fault}: {calls}");
    }
    for (error, code) in [
        ("EROFS", 73),
        ("ENOSPC", 73),
        ("EMFILE", 71),
        ("EACCES", 66),
    ] {
        let mut command = scene.program("strace");
        command
            .args(["-qq", "-e", &format!("inject=?open,openat:error={error}")])
            .args(["-P", scene.path("lock").to_str().expect("text"), "-o"])
            .args([log.as_path(), flock.as_path()])
            .args([scene.path("lock").to_str().expect("text"), "true"]);
        let _ = answer(&mut command).expect(code, error);
    }
}

/// Both of them, many at once, each adding to a number that nothing else protects.
#[test]
fn contention_of_both_loses_nothing() {
    const EACH: usize = 20;
    need_flock();
    let scene = Scene::new();
    let number = scene.write("number", "0");
    let step = "read n <number; echo $((n + 1)) >new; cat new >number";
    scene.script("step", &format!("#!/bin/sh\n{step}\n"));
    let lines = [
        format!("for i in $(seq {EACH}); do flock lock ./step || exit; done"),
        format!("for i in $(seq {EACH}); do flock -w 60 lock ./step || exit; done"),
        format!("for i in $(seq {EACH}); do flock -F lock ./step || exit; done"),
        format!("for i in $(seq {EACH}); do (flock 9; {step}) 9<lock || exit; done"),
    ];
    scene.write("lock", "");
    let all: Vec<_> = BOTH
        .iter()
        .flat_map(|side| lines.iter().map(|line| side.shell(&scene, line)))
        .map(|mut command| {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Started::new(&mut command)
        })
        .collect();
    let began = all.len();
    for started in all {
        let _ = started.finish().expect(0, "every step");
    }
    assert_eq!(
        read_number(&number) as usize,
        began * EACH,
        "steps that were lost"
    );
}
