//! Conditions that no user wishes for, made real: a file system on which no process may write, one without
//! locks, a process number that was given out again, two PID namespaces on one folder, no `/proc` or that of
//! another PID namespace, a kernel that does not tell of children, links and FIFOs where records stand, and input that is too deep or too long.
//!
//! Some need root, for mounts and namespaces. They say so where they are skipped, and a CI run as root
//! in which they cannot be made is a failure.

#![allow(
    clippy::disallowed_methods,
    reason = "what was planted by the test is removed by it, behind the store's back"
)]

use super::support::{Answer, Gate, Scene, Started, answer, is_root};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[allow(
    clippy::print_stdout,
    reason = "a reader of the tests' output has to know"
)]
fn skipped(why: &str) {
    println!("{why}");
}

/// Runs a line of shell as root in new namespaces. `None` where the tests are not root.
pub(crate) fn in_namespaces(scene: &Scene, flags: &[&str], line: &str) -> Option<Answer> {
    if !is_root() {
        skipped(&format!(
            "skipped: needs root for namespaces ({})",
            flags.join(" ")
        ));
        return None;
    }
    let mut command = scene.program("unshare");
    command.args(flags).args(["sh", "-ec", line]);
    let answer = answer(&mut command);
    let refused = answer.stderr().contains("unshare:");
    if refused && std::env::var_os("CI").is_none() {
        skipped(&format!("skipped: no namespaces here: {}", answer.stderr()));
        return None;
    }
    assert!(!refused, "root gets no namespaces: {}", answer.said());
    Some(answer)
}

#[test]
fn on_a_file_system_that_became_read_only_nobody_runs_and_everybody_may_look() {
    let scene = Scene::new();
    let line = "
        mkdir \"$TENURE_DIR\"
        mount -t tmpfs -o mode=700 none \"$TENURE_DIR\"
        tenure run free -- true
        tenure acquire held --owner none --request-id r-1 2>/dev/null >&2
        mount -o remount,ro \"$TENURE_DIR\"
        said() { rc=0; \"$@\" >out 2>err || rc=$?; echo \"$rc $(cat err out | head -c 300 | tr '\\n' ' ')\"; }
        cd /tmp; dir=$(mktemp -d); cd \"$dir\"
        said tenure check free
        said tenure check held
        said tenure run free -- touch ran
        said tenure run new -- touch ran
        said tenure run -n held -- touch ran
        said tenure release held --request-id r-1
        said tenure heartbeat held --request-id r-1
        said tenure clean
        ls ran 2>/dev/null || echo nothing-ran
        umount \"$TENURE_DIR\"; rm -rf \"$dir\"
    ";
    let Some(answer) = in_namespaces(&scene, &["--mount"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    let lines: Vec<&str> = said.lines().collect();
    let code = |index: usize| lines[index].split(' ').next().unwrap_or_default();
    assert_eq!(lines.len(), 9, "{said}");
    assert_eq!(
        (code(0), code(1)),
        ("0", "4"),
        "looking needs no writing: {said}"
    );
    for (index, what) in ["run", "a new lock", "a held one", "release", "heartbeat"]
        .iter()
        .enumerate()
    {
        let line = lines[index + 2];
        assert!(
            ["4 ", "7 ", "12 "]
                .iter()
                .any(|code| line.starts_with(code)),
            "{what} cannot be done here: {line}"
        );
        assert!(
            line.starts_with("4 ") || line.to_lowercase().contains("read-only"),
            "and is told why: {line}"
        );
    }
    assert_eq!(lines[8], "nothing-ran", "{said}");
}

/// NFS without its lock daemon answers ENOLCK to each of these calls; strace does it here.
#[test]
fn where_no_kernel_lock_is_to_be_had_nothing_runs_and_nothing_is_free() {
    let scene = Scene::new();
    scene.run(["run", "free", "--", "true"]).expect(0, "a lock");
    for error in ["ENOLCK", "EOPNOTSUPP"] {
        for words in [
            &["run", "free", "--", "touch", "ran"][..],
            &["run", "new", "--", "touch", "ran"],
            &["run", "--shared", "new", "--", "touch", "ran"],
            &["acquire", "free", "--owner", "none", "--request-id", "r-1"],
            &["check", "free"],
        ] {
            let mut command = scene.program("strace");
            command
                .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fcntl"])
                .args(["-e", &format!("inject=fcntl:error={error}")])
                .arg("tenure")
                .args(words)
                .current_dir(scene.root());
            let answer = answer(&mut command);
            let is_look = words[0] == "check";
            // A list without claims needs no lock to be read.
            if !(is_look && answer.code() == 0) {
                assert_eq!(
                    answer.code(),
                    12,
                    "{words:?} with {error}: {}",
                    answer.said()
                );
                assert!(!answer.stderr().is_empty(), "{words:?}: it is said why");
            }
            assert!(!scene.path("ran").exists(), "{words:?} with {error} ran");
        }
    }
    scene
        .run(["run", "free", "-n", "--", "true"])
        .expect(0, "afterwards it is free");
}

/// The kernel gives a number out again: `ns_last_pid` says which one comes next.
#[test]
fn a_process_number_that_was_given_out_again_is_not_its_first_owner() {
    for (profile, lock, more, takes) in [
        ("native", "a", "", ""),
        ("sprint", "sprint", "--epic-spec e", "--force"),
        ("resume", "job-1", "", ""),
    ] {
        let scene = Scene::new();
        let dir = scene.path("place");
        fs::create_dir(&dir).expect("a folder");
        let place = if profile == "sprint" {
            format!("--project-root {}", dir.display())
        } else {
            format!("--dir {}", dir.display())
        };
        let line = format!(
            "
            t() {{ verb=$1; shift; tenure --profile {profile} \"$verb\" {lock} {place} \"$@\"; }}
            sleep 1000 & owner=$!
            t acquire {more} --owner $owner --request-id first-1 >/dev/null 2>&1
            rc=0; t acquire {more} --owner $$ --request-id second-1 {takes} -w 0s >/dev/null 2>&1 || rc=$?
            echo before $rc
            # Its clock ticks have to differ from those of the next one of this number.
            kill $owner; wait $owner || :
            tick=$(cut -d' ' -f1 /proc/uptime); while [ \"$(cut -d' ' -f1 /proc/uptime)\" = \"$tick\" ]; do :; done
            again=0
            for try in 1 2 3 4 5 6 7 8 9 10; do
                echo $((owner - 1)) >/proc/sys/kernel/ns_last_pid
                sleep 1000 & again=$!
                [ $again -ne $owner ] || break
                kill $again; wait $again || :
            done
            [ $again -eq $owner ] && kill -0 $owner && echo reused
            rc=0; t acquire {more} --owner $$ --request-id second-1 {takes} -w 0s >/dev/null 2>&1 || rc=$?
            echo after $rc
            kill $again
            "
        );
        let flags = ["--pid", "--fork", "--mount-proc"];
        let Some(answer) = in_namespaces(&scene, &flags, &line) else {
            return;
        };
        let said = answer.expect(0, "the shell").stdout();
        assert_eq!(
            said, "before 4\nreused\nafter 0\n",
            "{profile}: while its owner lives it is held, and the next process of this number is \
             another one"
        );
    }
}

/// A killed container leaves a resume lock behind, and the next resume gets it: at once, if no command was there to be
/// seen, else when the ttl is over. No advice ends a holder that lives.
#[test]
fn killed_container_wedges_no_resume_lock() {
    let scene = Scene::new();
    let line = "
        export TENURE_PROFILE=resume; mkfifo in
        inside() { unshare --kill-child=KILL --pid --fork --mount-proc sh -ec \"$1\"; }
        inside 'exec tenure run job --ttl 3s -- sh -c \"echo up >in; exec sleep 1000\"' >/dev/null & first=$!
        read word <in
        rc=0; said=$(tenure run job -- true 2>&1) || rc=$?; echo held $rc
        echo \"$said\" | tail -n 1
        sleep 3.5
        rc=0; tenure run job -- true >/dev/null 2>&1 || rc=$?; echo kept $rc
        # The system ends what is in it a moment later.
        kill -KILL $(pgrep -P $first); wait $first || :
        for again in 1 2 3 4 5 6 7 8 9; do
            rc=0; said=$(tenure run job -- true 2>&1) || rc=$?
            case $said in *'takes the lock over in '*) break;; esac
            sleep 0.2
        done
        echo killed $rc
        case $said in *'takes the lock over in '*) echo when;; *force-release*) echo advice;; esac
        sleep 3.2
        tenure -q run job -- echo resumed
        inside 'tenure -q acquire owned --owner 1 --ttl 1s' >/dev/null
        rc=0; tenure run owned -- true >/dev/null 2>&1 || rc=$?; echo owned $rc
        sleep 1.5; tenure -q run owned -- echo over
        inside 'tenure -q acquire kept --owner 1' >/dev/null
        rc=0; said=$(tenure run kept -- true 2>&1) || rc=$?; echo unknown $rc
        case $said in *force-release*) echo advice;; esac
        unshare --uts sh -c 'hostname elsewhere; exec tenure run renamed -- sh -c \"echo up >in; exec sleep 1000\"' >/dev/null & named=$!
        read word <in
        rc=0; said=$(tenure run renamed -- true 2>&1) || rc=$?; echo renamed $rc
        case $said in *container*) echo container;; esac
        kill -KILL $(pgrep -P $named) $named; wait $named || :
        tenure -q run renamed -- echo here
    ";
    if !is_root() {
        skipped("skipped: needs root for namespaces");
        return;
    }
    let mut command = scene.program("sh");
    let answer = answer(command.args(["-ec", line]).current_dir(scene.root()));
    let said = answer.expect(0, "the shell").stdout();
    assert_eq!(
        said,
        "held 4\nThat is another container of this machine, and the holder is alive: it keeps its lock on the file.\n\
         kept 4\nkilled 4\nwhen\nresumed\nowned 4\nover\nunknown 4\nadvice\nrenamed 4\nhere\n"
    );
}

/// A sprint in a container is active while it keeps its lock on the file: force alone does not take it.
#[test]
fn sprint_in_another_container_needs_a_second_yes_table() {
    let scene = Scene::new();
    let line = "
        s() { tenure --profile sprint --project-root . \"$@\"; }; mkfifo in
        unshare --kill-child=KILL --pid --fork --mount-proc tenure --profile sprint --project-root . run sprint -- sh -c 'echo up >in; exec sleep 1000' & of=$!
        read word <in
        rc=0; said=$(s acquire --force --session-id x --epic-spec e --owner $$) || rc=$?; echo forced $rc
        echo \"$said\" | grep -c 'another PID namespace (a container)'
        rc=0; s run sprint --force -- true >/dev/null 2>&1 || rc=$?; echo run $rc
        kill -KILL $of; wait $of || :; sleep 0.4
        s acquire --force --session-id x --epic-spec e --owner $$ 2>/dev/null | head -n 1
    ";
    if !is_root() {
        skipped("skipped: needs root for namespaces");
        return;
    }
    let mut command = scene.program("sh");
    command.env_remove("TENURE_DIR").args(["-ec", line]);
    let answer = answer(command.current_dir(scene.root()));
    let said = answer.expect(0, "the shell").stdout();
    assert_eq!(said, "forced 4\n1\nrun 4\nstatus: acquired\n");
}

/// Containers that share a folder: neither sees the other's processes, and the kernel's locks hold
/// between them all the same.
#[test]
fn two_pid_namespaces_on_one_folder_exclude_each_other() {
    let scene = Scene::new();
    let line = "
        mkfifo go in; dir=$PWD
        inside() { unshare --kill-child=KILL --pid --fork --mount-proc sh -ec \"$1\" \"$dir\"; }
        inside 'tenure run shared-lock -- sh -c \"echo up >in; read word <go\"' & first=$!
        read word <in
        rc=0; inside 'tenure run -n shared-lock -- true' 2>/dev/null || rc=$?; echo held $rc
        # A waiter in the other namespace gets it as soon as it is free.
        inside 'tenure run shared-lock -w 20s -- echo turn' 2>/dev/null & second=$!
        tenure check shared-lock >/dev/null 2>&1 || echo seen-from-outside
        echo done >go; wait $first; wait $second
        # No process here can see whether the command of a killed run is gone, so its lease has to end.
        inside 'tenure run --ttl 2s shared-lock -- sh -c \"echo up >in; exec sleep 1000\"' & third=$!
        read word <in
        kill -KILL $(pgrep -P $third)
        wait $third || :
        inside 'tenure run shared-lock -w 20s -- echo next' 2>/dev/null
        # An owner that cannot be seen from here is not a dead one.
        inside 'sleep 1000 & tenure acquire owned --owner $! --request-id r-1 >/dev/null 2>&1
                echo up >in; read word <go; kill $!' & fourth=$!
        read word <in
        rc=0; inside 'tenure run -n owned -- true' 2>/dev/null || rc=$?; echo owned $rc
        echo done >go; wait $fourth || :
    ";
    if !is_root() {
        skipped("skipped: needs root for namespaces");
        return;
    }
    let mut command = scene.program("sh");
    let answer = answer(command.args(["-ec", line]).current_dir(scene.root()));
    let said = answer.expect(0, "the shell").stdout();
    assert_eq!(said, "held 4\nseen-from-outside\nturn\nnext\nowned 4\n");
}

/// What a container starts has its session and its process group outside: both have the number 0 inside.
#[test]
fn a_session_and_a_group_outside_the_pid_namespace_are_no_fault() {
    let scene = Scene::new();
    let daemon = "tenure -q run x -- sh -c 'setsid -f sh late.sh; sleep 1.2'; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; grep -q '^[0-9]' late && break; done; cat late";
    scene.write(
        "late.sh",
        // A daemon once setsid(1) has ended: until then it stands below the command.
        "sleep 0.1; tenure -q run -w 20s x -- echo ran >late 2>&1; echo $? >>late",
    );
    for (line, expected) in [
        (
            "tenure -q run x -- sh -c 'tenure -q run -n x -- true'",
            "81",
        ),
        (
            "tenure -q run x -- sh -c 'setsid -w tenure -q run -n x -- true'",
            "81",
        ),
        (daemon, "ran 0 0"),
        ("tenure -q run --exec x -- sh -c 'exit 3'", "3"),
        (
            "tenure -q run x -- sh -c '(sleep 0.3; echo late) & wait; exit 3'",
            "late 3",
        ),
        ("timeout -s TERM 0.3 tenure -q run x -- sleep 100", "124"),
        (
            "tenure -q run x -- sleep 1 & sleep 0.3; tenure run -w 20s x -- echo ran 2>/dev/null",
            "ran 0",
        ),
        (
            "tenure -q run x --wait-all -- sh -c 'sleep 0.2 & exit 3'",
            "3",
        ),
        (
            "tenure acquire -q y --owner $$ >/dev/null; tenure release -q y >/dev/null",
            "0",
        ),
        (
            "sleep 3 | tenure -q run --max-runtime 300ms x -- sleep 100",
            "10",
        ),
    ] {
        // With a terminal and without; its foreground group is outside too.
        let root = scene.root().display();
        let inner = format!("exec 2>/dev/null; {line}; echo $?");
        scene.write("inner.sh", &inner);
        for around in ["", "script -qec \"$all\" /dev/null | tr -d '\\r'; exit"] {
            let outer = format!(
                "cd {root}; all='unshare --kill-child=KILL --pid --fork --mount-proc bash inner.sh'; rm -f late; {around}\n\
                 unshare --kill-child=KILL --pid --fork --mount-proc bash inner.sh"
            );
            let Some(answer) = in_namespaces(&scene, &["--mount"], &outer) else {
                return;
            };
            let said = answer.stdout() + &answer.stderr();
            let words: Vec<&str> = said.split_whitespace().collect();
            assert_eq!(words.join(" "), expected, "{around:?} {line}");
        }
    }
}

/// A number of another namespace names no process here, or another one: where tenure shows it, it says so.
#[test]
fn a_process_id_of_another_namespace_is_said_to_be_one() {
    if !is_root() {
        skipped("skipped: needs root for namespaces");
        return;
    }
    let scene = Scene::new();
    let gate = Gate::new(&scene, "x");
    let inside = |words: &[&str]| {
        let mut command = scene.program("unshare");
        command
            .args([
                "--kill-child=KILL",
                "--pid",
                "--fork",
                "--mount-proc",
                "tenure",
            ])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Started::new(&mut command)
    };
    let script = gate.script("");
    let holder = inside(&["run", "x", "--", "sh", "-c", &script]);
    let _ = gate.entered();
    let waiter = inside(&["run", "x", "--wait", "1m", "--", "true"]);
    scene.until_queued("x", 1);
    let elsewhere = "PID 1 of another PID namespace (tester@";
    for words in [
        &["check", "x"][..],
        &["list"],
        &["run", "-n", "x", "--", "true"],
        &["run", "-w", "50ms", "x", "--", "true"],
    ] {
        let answer = scene.run(words);
        let said = answer.stdout() + &answer.stderr();
        assert!(said.contains(elsewhere), "{words:?}: {said}");
        if answer.stdout().contains(" waiting for ") {
            assert_eq!(said.matches(elsewhere).count(), 2, "the waiter too: {said}");
        }
    }
    let facts = scene.check("x");
    assert_eq!(facts["holder"]["other_pid_namespace"], true, "{facts}");
    assert_eq!(facts["queue"][0]["other_pid_namespace"], true, "{facts}");
    gate.open();
    drop((holder, waiter));
    let own = scene.hold("y", [""; 0]);
    assert_eq!(
        scene.check("y")["holder"]["other_pid_namespace"],
        serde_json::Value::Null
    );
    assert!(!scene.run(["check", "y"]).stdout().contains("namespace"));
    let _ = own.open().expect(0, "the command");
}

/// How `/proc` can be of no use, as flags of unshare(1) and what is done first.
const WITHOUT_PROC: [(&[&str], &str); 3] = [
    (&["--mount"], "umount -l /proc"),
    (&["--mount"], "mount -t tmpfs none /proc"),
    (&["--pid", "--fork", "--kill-child=KILL"], ":"),
];

/// A daemon in a session of its own, deaf to all that asks.
const DAEMON: &str = "
    cat >daemon <<'END'
        trap '' TERM INT HUP
        echo $$ >pid.new; mv pid.new pid
        while [ -e go ]; do sleep 0.02; done
END
    cat >leaves <<'END'
        (setsid sh daemon </dev/null >/dev/null 2>&1 &)
        while [ ! -e pid ]; do sleep 0.02; done
END
    alive() { kill -0 $(cat pid) 2>/dev/null && echo alive || echo gone; rm pid; }
    touch go
    code() { rc=0; \"$@\" 2>err || rc=$?; echo $1 $rc; }
";

#[test]
fn without_a_usable_proc_everybody_is_waited_for_and_ended_all_the_same() {
    for (flags, first) in WITHOUT_PROC {
        let scene = Scene::new();
        let root = scene.root().display();
        let line = format!(
            "{first}; cd '{root}'; {DAEMON}
            all() {{ tenure run x --wait-all -- sh -c 'setsid sh -c \"sleep 0.4; touch last\" & :'; }}
            code all; ls last
            limit() {{ tenure run x --grace 0.3s --max-runtime 0.3s \"$@\"; }}
            code limit -- sh -c '. ./leaves; sleep 1000'; alive
            code limit --wait-all -- sh ./leaves; alive
            # A shell that has become tenure: it adopts no process, and ends only the group.
            became() {{ sh -c 'sleep 1000 & echo $! >own; exec tenure run x --grace 0.3s --max-runtime 0.3s \"$@\"' sh \"$@\"; }}
            code became -- sh -c '(trap \"\" INT TERM; while [ -e go ]; do sleep 0.02; done) & sleep 1000'
            tenure run -n x -- echo free; kill $(cat own)
            all() {{ sh -c 'sleep 1000 & echo $! >own; exec tenure run x --wait-all -- sh -c \"(sleep 0.4; touch group) & :\"'; }}
            code all; ls group; kill $(cat own)
            rm go"
        );
        let Some(answer) = in_namespaces(&scene, flags, &line) else {
            return;
        };
        let said = answer.expect(0, first).stdout();
        assert_eq!(
            said, "all 0\nlast\nlimit 10\ngone\nlimit 10\ngone\nbecame 10\nfree\nall 0\ngroup\n",
            "{flags:?}, {first}"
        );
    }
}

/// A service with `ProcSubset=pid` does not see the id of the boot. Who was killed there is followed at once, and who lives
/// is waited for.
#[test]
fn without_the_id_of_a_boot_the_dead_are_followed_at_once_table() {
    let hides = "mount -t tmpfs none /proc/sys";
    for (what, first, second) in [
        ("nobody sees the boot", hides, ":"),
        ("the next caller sees it", ":", hides),
    ] {
        let scene = Scene::new();
        scene.write("work", "echo $$ >command; exec sleep 1000");
        let holder = format!("{second}; tenure run x -- sh ./work 2>err & echo $! >run; wait");
        scene.write("holder", &holder);
        // The second shell is in a namespace of mounts of its own, which the first one does not see.
        let line = format!(
            "{first}; cd '{root}'
            unshare --mount sh ./holder >/dev/null 2>&1 &
            while [ ! -s command ]; do sleep 0.02; done
            # The command lives, so nobody is let in.
            kill -KILL $(cat run); rc=0; tenure run -n x -- true 2>/dev/null || rc=$?; echo $rc
            kill -KILL $(cat command); tenure run x --wait 5s -- echo free 2>/dev/null",
            root = scene.root().display()
        );
        let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
            return;
        };
        let answer = answer.expect(0, what);
        assert_eq!(answer.stdout(), "4\nfree\n", "{what}: {}", answer.said());
    }
}

/// A power cut has emptied the record of a hold. In the next boot each verb says what its format makes of that, and the next
/// caller gets the lock, by force where the format wants that.
#[test]
fn after_a_power_cut_the_next_boot_goes_on_table() {
    let table = [
        (
            "sprint",
            "sprint --project-root here --epic-spec e",
            "here/.sprint-running",
            "check 4 first-1\nlist 0\nclean 0\nacquire 4\nforced 0\nsecond 4\n",
        ),
        (
            "resume",
            "j --dir here",
            "here/resume_locks/j.lock",
            "check 0\nlist 0\nclean 0\nacquire 0\nsecond 4\n",
        ),
        (
            "session",
            "42 --dir here",
            "here/locks/42.lock",
            "check 0\nlist 0\nclean 0\nacquire 0\nsecond 4\n",
        ),
        (
            "fleet",
            "app --dir here --intent-name i --intent-version 1",
            "here/app.lock",
            "check 4\nlist 0\nclean 4\nacquire 4\nforced 0\nsecond 4\n",
        ),
    ];
    for (profile, lock, record, expected) in table {
        let scene = Scene::new();
        scene.write("boot", "00000000-0000-4000-8000-000000000000\n");
        let words: Vec<&str> = lock
            .split(" --epic")
            .next()
            .unwrap_or(lock)
            .split(" --intent")
            .collect();
        let line = format!(
            "cd '{root}'; mkdir -m 700 here; sleep 1000 & owner=$!
            lock() {{ tenure --profile {profile} acquire {lock} --owner $owner --request-id \"$@\"; }}
            lock first-1 >out 2>err; : >{record}; touch -d '1 minute ago' {record}
            mount --bind boot /proc/sys/kernel/random/boot_id
            rc=0; tenure --profile {profile} check {named} >out 2>&1 || rc=$?
            echo check $rc $(grep -o first-1 out | head -n 1)
            rc=0; tenure --profile {profile} list {place} >out 2>&1 || rc=$?; echo list $rc
            rc=0; tenure --profile {profile} clean --dry-run {place} >out 2>&1 || rc=$?; echo clean $rc
            rc=0; lock next-1 >out 2>&1 || rc=$?; echo acquire $rc
            [ $rc = 0 ] || {{ rc=0; lock next-1 --force --yes >out 2>&1 || rc=$?; echo forced $rc; }}
            rc=0; lock next-2 >out 2>&1 || rc=$?; echo second $rc
            kill $owner",
            root = scene.root().display(),
            named = words[0],
            place = words[0].split_once(' ').map_or("", |(_, place)| place),
        );
        let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
            return;
        };
        let said = answer.expect(0, profile).stdout();
        assert_eq!(said, expected, "{profile}");
    }
}

/// In a PID namespace without a `/proc` of its own, each number there is another process's.
#[test]
fn the_numbers_of_another_namespaces_proc_are_not_believed() {
    let scene = Scene::new();
    let root = scene.root().display();
    let line = format!(
        "cd '{root}'
        tenure run x -- sh -c 'grep -aq \"started.:[0-9]\" \"$TENURE_DIR\"/x.tenure || echo unknown'
        sleep 1000 & owner=$!
        rc=0; tenure acquire o --owner $owner 2>err >&2 || rc=$?; echo $rc $(grep -c 'cannot be seen' err)
        rc=0; tenure acquire o 2>err >&2 || rc=$?; echo $rc
        # A claim whose process cannot be looked at is held until its lease is over.
        tenure run y --ttl 2s -- sh -c 'kill -KILL $PPID; exec sleep 1' 2>/dev/null || :
        rc=0; tenure run -n y -- true 2>/dev/null || rc=$?; echo $rc
        tenure run y --wait 20s -- echo later 2>/dev/null
        kill $owner"
    );
    let flags = ["--pid", "--fork", "--kill-child=KILL"];
    let Some(answer) = in_namespaces(&scene, &flags, &line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    assert_eq!(said, "unknown\n2 1\n2\n4\nlater\n");
}

/// A program that refuses waitid(2) to what it starts: `any` of it, or only where it is about one `pid`.
/// The program also refuses other calls, by their names.
fn refuses_waitid(scene: &Scene) -> PathBuf {
    let source = scene.write(
        "refuses.c",
        "
        #include <errno.h>
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int count, char **words) {
            unsigned least = words[1][0] == 'p' ? 1 : 0;
            unsigned call = SYS_waitid, error = EPERM;
            if (words[1][0] == 's') call = SYS_setpgid;
            if (words[1][0] == 'c') call = SYS_clone;
            if (words[1][0] == 'v') call = SYS_vfork;
            if (words[1][0] == 'f') call = SYS_fstatfs, error = ENOSYS;
            struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
                BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, least, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = {sizeof code / sizeof *code, code};
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 99;
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
            execvp(words[2], words + 2);
            return 98;
        }",
    );
    let program = scene.path("refuses");
    let mut command = std::process::Command::new("cc");
    let built = answer(command.arg("-o").arg(&program).arg(source));
    let _ = built.expect(0, "a C compiler");
    program
}

/// What a filter of system calls refuses is not the fault of the command, nor of the file system.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn who_refuses_a_call_is_named_table() {
    let scene = Scene::new();
    let refuses = refuses_waitid(&scene);
    let run = |which: &str| {
        let mut command = scene.program(refuses.to_str().expect("text"));
        let words = ["tenure", "run", "x", "--output", "json", "--", "true"];
        answer(command.arg(which).args(words).current_dir(scene.root()))
    };
    // Whether a process is made by the one call or the other is up to the C library.
    let mut refused = 0;
    for which in ["setpgid", "clone", "vfork"] {
        let answer = run(which);
        if answer.code() == 0 {
            continue;
        }
        refused += 1;
        let said = answer.expect(1, which).json();
        assert_eq!(said["error"]["code"], "CANNOT_SUPERVISE", "{which}: {said}");
        let message = said["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("seccomp"), "{which}: {message}");
        assert!(scene.is_free("x"), "{which}");
    }
    assert!(refused > 0, "none of these calls was needed");
    let said = run("fstatfs").expect(12, "it may be any").json();
    let message = said["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("seccomp") && message.contains("--allow-network-fs"),
        "{message}"
    );
}

/// A host whose clock is ahead by more than the ttl calls every hold of others silent. What the file system of the record
/// says by its own clock is named, and only a second yes ends the hold. On a file system of this machine alone there is one
/// clock, and the rule of the format decides.
#[cfg(all(target_os = "linux", target_arch = "x86_64", feature = "testing-clock"))]
#[test]
fn a_host_with_a_wrong_clock_ends_no_living_hold_of_another() {
    use tenure_os::clock::stepped::{STEPS, real_us};
    let scene = Scene::new();
    let refuses = refuses_waitid(&scene);
    let folder = scene.path("fleet");
    let made = format!("umask 077; mkdir '{}'", folder.display());
    let _ = scene.shell(&made).expect(0, "a folder");
    let steps = scene.path("steps");
    let call = |ahead_seconds: i64, which: &str, words: &[&str]| {
        // For as long as this host runs, its clock has been so.
        fs::write(&steps, format!("0 {}\n", ahead_seconds * 1_000_000)).expect("a clock");
        let mut command = scene.program(refuses.to_str().expect("text"));
        command.args([which, "tenure", "--profile", "fleet", "--allow-network-fs"]);
        command.args(words).args(["--output", "json"]);
        command.env("TENURE_DIR", &folder).env(STEPS, &steps);
        answer(command.current_dir(scene.root()))
    };
    let renewed = i64::try_from(real_us() / 1_000_000).expect("a time");
    let at = jiff::Timestamp::from_second(renewed).expect("a time");
    let record = format!(
        r#"{{"lock_version":"v1","lock_name":"app","request_id":"r-1","actor":"a","intent":"i",
        "intent_version":"1","host_id":"another-host","pid":7,"created_at":"{at}","last_heartbeat_at":"{at}",
        "ttl_seconds":900}}"#
    );
    let path = folder.join("app.lock");
    fs::write(&path, &record).expect("a record");
    let take = [
        "acquire",
        "app",
        "--intent-name",
        "i",
        "--intent-version",
        "1",
        "--owner",
        "none",
    ];
    let with = |more: &[&'static str]| [&take[..], more].concat();
    let forced = with(&["--force-lock"]);
    let code_of = |ahead, which, words: &[&str]| {
        let said = call(ahead, which, words)
            .expect(4, "it is not given")
            .json();
        let code = said["error"]["code"].as_str().expect("a code").to_owned();
        (
            code,
            said["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    assert_eq!(code_of(0, "fstatfs", &forced).0, "LOCK_HELD");
    assert_eq!(code_of(3_600, "fstatfs", &take).0, "LOCK_STALE");
    for words in [&forced[..], &["force-release", "app"]] {
        let (code, said) = code_of(3_600, "fstatfs", words);
        assert_eq!(code, "CONFIRMATION_REQUIRED", "{said}");
        assert!(
            said.contains("clocks of two hosts differ") && said.contains("--yes"),
            "{said}"
        );
    }
    let (code, said) = code_of(-3_600, "fstatfs", &forced);
    assert_eq!(code, "LOCK_UNREADABLE", "{said}");
    assert!(said.contains("the clock of this host"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("it stands"), record);
    let _ = call(3_600, "fstatfs", &with(&["--force-lock", "--yes"])).expect(0, "a second yes");
    // The rule of the format, by the one clock that there is.
    fs::write(&path, &record).expect("a record");
    let _ = call(3_600, "none", &forced).expect(0, "it is stale");
}

#[cfg(target_os = "linux")]
#[test]
fn where_the_kernel_does_not_tell_of_children_nothing_is_started_and_nothing_released() {
    let scene = Scene::new();
    let refuses = refuses_waitid(&scene);
    let run = |which: &str, words: &[&str]| {
        let mut command = scene.program(refuses.to_str().expect("text"));
        answer(
            command
                .args([which, "tenure"])
                .args(words)
                .current_dir(scene.root()),
        )
    };
    let answer = run("any", &["run", "x", "--", "touch", "ran"]).expect(1, "nothing could be seen");
    assert!(answer.stderr().contains("waitid"), "{}", answer.stderr());
    assert!(!scene.path("ran").exists(), "the command was not started");
    assert!(scene.is_free("x"), "and the lock was given back");
    for close in [&[][..], &["--close"]] {
        let work = "exec >/dev/null 2>&1; while [ ! -e go ]; do sleep 0.02; done; rm go";
        let words = [&["run", "x", "-q"], close, &["--", "sh", "-c", work]].concat();
        let answer = run("pid", &words).expect(1, "the end cannot be seen");
        let said = answer.stderr();
        assert!(
            said.contains("the lock is not released"),
            "{close:?}: {said}"
        );
        let _ = scene
            .run(["run", "-n", "x", "--", "true"])
            .expect(4, "the command has it");
        fs::write(scene.path("go"), "").expect("a file");
        let _ = scene
            .run(["run", "x", "-q", "--", "true"])
            .expect(0, "once it has ended");
    }
    // No process would renew this hold.
    let words = [
        "run",
        "42",
        "--profile",
        "session",
        "--",
        "sh",
        "-c",
        "exec >/dev/null 2>&1; sleep 0.5; touch ran",
    ];
    let answer = run("pid", &words).expect(1, "the end cannot be seen");
    assert!(
        answer.stderr().contains("the command is killed"),
        "{}",
        answer.stderr()
    );
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(!scene.path("ran").exists(), "it was killed");
}

/// A number of a file is used again as soon as no process keeps the file open: on ext4 by the next file. A lock that knew
/// its file by the number alone would take the next one for its own (as py-filelock did). The holder keeps its own
/// file open, so no other file gets that number while it holds. The supervisor is stopped meanwhile, so that it looks
/// only after the exchange. The test makes a file system of its own where it may: on a shared one another process can
/// take the number first.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_was_made_in_the_place_of_a_held_one_never_has_its_number() {
    let scene = Scene::new();
    let line = "
        mkdir fs
        again() { # whether one of the next files gets the number $1
            n=0
            while [ $n -lt 300 ]; do
                : >$TENURE_DIR/$2$n
                [ $(stat -c %i $TENURE_DIR/$2$n) != $1 ] || return 0
                n=$((n+1))
            done
            return 1
        }
        reuses() { : >fs/a; one=$(stat -c %i fs/a); rm fs/a; : >fs/b; [ $(stat -c %i fs/b) = $one ]; }
        truncate -s 16M image
        mkfs.ext4 -q -F image 2>/dev/null && mount -o loop image fs 2>/dev/null || echo shared >&2
        reuses || { echo vacuous; exit 0; }
        mkdir -m 2770 fs/locks; TENURE_DIR=$PWD/fs/locks; file=$TENURE_DIR/x.tenure
        tenure run --grace 1s x -- sh -c 'touch begun; exec sleep 60' 2>told & holder=$!
        while [ ! -e begun ]; do sleep 0.02; done; sleep 0.3
        number=$(stat -c %i $file)
        kill -STOP $holder
        cp $file copy; rm $file
        if again $number f; then echo reused; else echo kept; fi
        cat copy >$TENURE_DIR/f0; mv $TENURE_DIR/f0 $file
        kill -CONT $holder
        rc=0; wait $holder || rc=$?; echo $rc
        if again $number g; then echo free; else echo never; fi
        grep -o 'something else stands' told
    ";
    let line = format!("cd '{}'\n{line}", scene.root().display());
    let Some(answer) = in_namespaces(&scene, &["--mount"], &line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    // `free` shows that the test can fail: without the holder the number comes back.
    assert_eq!(said, "kept\n80\nfree\nsomething else stands\n");
}

/// A time namespace shifts the boot clock, and with it the age of every lease and the start time of every
/// process, for a process that looks from within. Neither may make a live owner look dead, nor the other way
/// round, and a hold that was taken within is the same one outside.
#[test]
fn a_shifted_boot_clock_takes_no_lock_from_a_live_owner() {
    let scene = Scene::new();
    // A word of call, the owner's number where it has one, and what is told of the answer.
    let script = "
        words=$1; word=$2; shift 2
        at() { verb=$1; shift; tenure $verb $words \"$@\"; }
        case $word in
          taken) at acquire --owner $1 --request-id r-1 >/dev/null 2>&1;;
          second) rc=0; at acquire --wait 0 --owner $$ --request-id r-2 >/dev/null 2>&1 || rc=$?; echo $rc;;
          young) age=$(at check --output json | grep -o '\"age_ms\":[0-9]*' | cut -d: -f2)
                 [ $age -lt 60000 ] && echo young || echo $age;;
          released) at release --request-id r-1 >/dev/null 2>&1;;
        esac
    ";
    let script = scene.write("calls", script);
    // The kernel refuses a clock before its boot: on a machine that has just started only half of its time is left out.
    let uptime = fs::read_to_string("/proc/uptime").expect("Linux says how long it runs");
    let uptime = uptime.split('.').next().and_then(|all| all.parse().ok());
    let back = uptime.map_or(600, |seconds: u64| (seconds / 2).min(600));
    for shift in ["1000000".to_owned(), format!("-{back}")] {
        for profile in ["native", "resume"] {
            let dir = scene.path(&format!("{profile}{shift}"));
            fs::create_dir(&dir).expect("a folder");
            let words = format!("job-1 --profile {profile} --dir {}", dir.display());
            let line = format!(
                "
                calls() {{ sh -e {script} '{words}' \"$@\"; }}
                within() {{ unshare --time --boottime {shift} --fork sh -e {script} '{words}' \"$@\"; }}
                calls taken $$; echo outside $(within second) $(within young)
                calls released
                within taken $$; echo inside $(calls second) $(calls young)
                calls released
                sleep 1000 & calls taken $!; kill $!; wait $! || :; echo dead $(within second)
                ",
                script = script.display(),
            );
            let Some(answer) = in_namespaces(&scene, &["--time", "--fork"], &line) else {
                return;
            };
            let said = answer.expect(0, "the shell").stdout();
            assert_eq!(
                said, "outside 4 young\ninside 4 young\ndead 0\n",
                "{profile}, shifted by {shift} s"
            );
        }
    }
}

/// Where no process is watched a lease decides, whose age is not the shifted clock's.
#[test]
fn a_shifted_boot_clock_ends_no_lease() {
    let scene = Scene::new();
    let line = "
        within() { unshare --time --boottime $1 --fork sh -ec \"$2\"; }
        refused='rc=0; tenure run -n leased -- true 2>/dev/null || rc=$?; echo $rc'
        tenure acquire leased --owner none --ttl 1h --request-id r-1 >/dev/null 2>&1
        echo ahead $(within 1000000 \"$refused\")
        tenure release leased --request-id r-1 >/dev/null
        within 1000000 'tenure acquire leased --owner none --ttl 1s --request-id r-1 >/dev/null 2>&1'
        tenure run -w 5s leased -- echo over 2>/dev/null
    ";
    let Some(answer) = in_namespaces(&scene, &["--time", "--fork"], line) else {
        return;
    };
    let said = answer.expect(0, "the shell").stdout();
    assert_eq!(said, "ahead 4\nover\n");
}

/// The four formats, with the words of a call and the place of the record.
fn published(scene: &Scene) -> Vec<(Vec<String>, PathBuf)> {
    let place = |profile: &str| scene.path(profile);
    [
        ("sprint", "--project-root", "sprint", ".sprint-running"),
        ("resume", "--dir", "job-1", "resume_locks/job-1.lock"),
        ("session", "--dir", "42", "locks/42.lock"),
        ("fleet", "--dir", "app", "app.lock"),
    ]
    .into_iter()
    .map(|(profile, flag, lock, record)| {
        let place = place(profile);
        let folder = place.join(record);
        let folder = folder.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("ours");
        let words = [
            "--profile",
            profile,
            "VERB",
            lock,
            flag,
            place.to_str().expect("text"),
        ];
        let words = words.map(str::to_owned).to_vec();
        (words, place.join(record))
    })
    .collect()
}

fn call(scene: &Scene, words: &[String], verb: &str, more: &[&str]) -> Answer {
    let words = words
        .iter()
        .map(|word| if word == "VERB" { verb } else { word });
    let mut command = scene.program("timeout");
    answer(command.arg("20").arg("tenure").args(words).args(more))
}

fn acquiring(words: &[String]) -> Vec<&'static str> {
    match words[1].as_str() {
        "sprint" => vec!["--owner", "1", "--request-id", "r-1", "--epic-spec", "e"],
        "fleet" => vec![
            "--owner",
            "none",
            "--request-id",
            "r-1",
            "--intent-name",
            "x",
            "--intent-version",
            "1",
        ],
        "session" => vec!["--owner", "none", "--request-id", "r-1"],
        _ => vec!["--owner", "1", "--request-id", "r-1"],
    }
}

/// Puts something to a path.
type Plant<'a> = &'a dyn Fn(&Path);

#[test]
fn a_link_or_a_fifo_in_place_of_a_record_is_neither_followed_nor_waited_for() {
    let scene = Scene::new();
    for (words, record) in published(&scene) {
        let victim = scene.write("victim", "precious");
        let plants: [(&str, Plant<'_>); 4] = [
            ("a link to a file", &|at| {
                symlink(&victim, at).expect("a link");
            }),
            ("a link to nothing", &|at| {
                symlink("nowhere", at).expect("a link");
            }),
            ("a FIFO", &|at| {
                let made = scene.program("mkfifo").arg(at).status();
                assert!(made.expect("mkfifo").success());
            }),
            ("a folder", &|at| fs::create_dir(at).expect("a folder")),
        ];
        for (what, plant) in plants {
            plant(&record);
            let kind = fs::symlink_metadata(&record)
                .expect("it stands")
                .file_type();
            for (verb, more) in [
                ("acquire", acquiring(&words)),
                ("check", vec![]),
                ("release", vec!["--request-id", "r-1"]),
            ] {
                let answer = call(&scene, &words, verb, &more);
                assert!(
                    !matches!(answer.code(), 124 | 137),
                    "{} {verb} waited for {what}",
                    words[1]
                );
                assert!(
                    answer.code() != 0,
                    "{} {verb} took {what} for a lock: {}",
                    words[1],
                    answer.said()
                );
            }
            let now = fs::symlink_metadata(&record).expect("it stands still");
            assert_eq!(now.file_type(), kind, "{}: {what} was replaced", words[1]);
            assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious");
            if kind.is_dir() {
                fs::remove_dir(&record).expect("removed");
            } else {
                fs::remove_file(&record).expect("removed");
            }
        }
        // And the folder beside it, in which private files are made.
        let ledger = record.parent().expect("a folder").join(".tenure");
        let elsewhere = scene.path("elsewhere");
        fs::create_dir_all(&elsewhere).expect("a folder");
        let _ = fs::remove_dir_all(&ledger);
        symlink(&elsewhere, &ledger).expect("a link");
        let answer = call(&scene, &words, "acquire", &acquiring(&words));
        assert_ne!(answer.code(), 0, "{}: {}", words[1], answer.said());
        let entries = fs::read_dir(&elsewhere).expect("a folder").count();
        assert_eq!(
            entries, 0,
            "{}: something was written through the link",
            words[1]
        );
    }
}

#[test]
fn yaml_of_any_depth_is_answered_at_once() {
    let scene = Scene::new();
    let project = scene.path("project");
    fs::create_dir(&project).expect("a folder");
    let root = project.to_str().expect("text").to_owned();
    for deep in [
        "[".repeat(300_000),
        "{a: ".repeat(200_000),
        "- ".repeat(300_000),
    ] {
        fs::write(project.join(".sprint-running"), &deep).expect("a record");
        let old = scene
            .program("touch")
            .args(["-d", "1 hour ago"])
            .arg(project.join(".sprint-running"))
            .status();
        assert!(old.expect("touch").success());
        let checked = scene.run(["--profile", "sprint", "check", "--project-root", &root]);
        assert!(
            checked.code() < 13,
            "it died of a record: {}",
            checked.said()
        );

        let document = scene.write("document", &deep);
        let line = format!(
            "tenure --profile sprint check --project-root {root} --input - <{}",
            document.display()
        );
        let answer = scene.shell(&line);
        assert_eq!(answer.code(), 2, "as a call: {}", answer.said());

        let locked = ["--profile", "fleet", "run", "--dir", &root, "--intent"];
        let answer =
            scene.run(
                locked
                    .into_iter()
                    .chain([document.to_str().expect("text"), "--", "true"]),
            );
        assert_eq!(answer.code(), 2, "as an intent: {}", answer.said());
    }
}

/// A year of a busy lock, which the reader may not keep in memory: a tenth of it on each build, a
/// million lines with `TENURE_HOSTILE=long`.
#[test]
fn an_audit_of_very_many_lines_is_read_within_bounds() {
    let is_long = std::env::var_os("TENURE_HOSTILE").is_some_and(|value| value == "long");
    let lines = if is_long { 1_000_000 } else { 100_000_u32 };
    let scene = Scene::new();
    scene
        .run(["run", "a", "--", "true"])
        .expect(0, "a lock and its folder");
    let mut text = String::new();
    for line in 0..lines {
        let lock = if line == 77_777 { "needle" } else { "a" };
        let (second, milli) = (line / 1_000 % 60, line % 1_000);
        let _ = writeln!(
            text,
            "{{\"event\":\"lock_released\",\"held_duration_seconds\":1,\"lock_name\":\"{lock}\",\
             \"request_id\":\"r\",\"result\":\"success\",\"timestamp\":\"2026-02-07T10:{:02}:{second:02}.{milli:03}Z\"}}",
            line / 60_000
        );
    }
    let audit = scene.locks().join("audit");
    fs::create_dir_all(&audit).expect("a folder");
    fs::set_permissions(&audit, fs::Permissions::from_mode(0o700)).expect("ours");
    fs::write(audit.join("audit.jsonl"), &text).expect("an audit");
    drop(text);
    // The smallest file has 14 MB; a process that kept it in memory would not fit beside the program itself.
    let mut reading = scene.program("prlimit");
    reading.args([
        "--data=12000000",
        "tenure",
        "audit",
        "needle",
        "--output",
        "json",
    ]);
    // As long as it takes: a million lines are a minute's work for a debug build on a busy machine.
    let found = reading.output().expect("it runs");
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    assert!(said.contains("\"lock_name\":\"needle\""), "{said}");
    assert!(!said.contains("\"lock_name\":\"a\""), "{said}");
}

/// A caller that was stopped while it asked for the guard of a lock has not waited in that time, and tries once more.
#[cfg(target_os = "linux")]
#[test]
fn caller_that_was_stopped_at_the_guard_gets_it() {
    let scene = Scene::new();
    let line = r#"
        tenure -q run x -- true
        python3 -c '
import fcntl, os, struct, time
file = os.open(os.environ["TENURE_DIR"] + "/x.tenure", os.O_RDWR)
fcntl.fcntl(file, 37, struct.pack("hhqqi4x", 1, 0, 1 << 60, 1, 0))
open("kept", "w").close(); time.sleep(6.5)' & keeper=$!
        until [ -e kept ]; do sleep 0.05; done
        tenure -q run x -n -- echo ran & caller=$!
        sleep 0.5; kill -STOP $caller; sleep 6.5; kill -CONT $caller
        wait $caller && echo $?; wait $keeper
    "#;
    let mut command = scene.program("bash");
    let answer = answer(command.args(["-ec", line]).current_dir(scene.root()));
    assert_eq!(answer.expect(0, "the shell").stdout(), "ran\n0\n");
}
