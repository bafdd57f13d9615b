//! Who is inside of a run: by ancestry, and by what was inherited only where ancestry cannot be seen. And what keeps a
//! run: its command, also where that leaves its process group or its session.

use crate::support::{Scene, answer, timed};
use std::time::Duration;

/// Runs a script, and says what it said and how long it took.
fn script(scene: &Scene, text: &str) -> (String, Duration) {
    let mut shell = scene.program("sh");
    shell.args(["-c", text]).current_dir(scene.root());
    let (said, took) = timed(|| answer(&mut shell));
    (format!("{}{}", said.stdout(), said.stderr()), took)
}

/// Ways in which a command loses the variables of its run.
const STRIPPED: &str =
    "env -i PATH=\"$PATH\" HOME=\"$HOME\" USER=tester TENURE_DIR=\"$TENURE_DIR\"";

#[test]
fn nested_call_that_lost_its_variables_is_known_by_ancestry() {
    let scene = Scene::new();
    for (outer, inner, expected) in [
        // Each would wait for its own run.
        ("x", "tenure -q run --wait forever x -- echo ran", "81"),
        ("x", "tenure -q run --wait 1m x -- echo ran", "81"),
        ("x", "tenure -q run -n x -- echo ran", "81"),
        ("x", "tenure -q run -s --wait 1m x -- echo ran", "81"),
        ("x", "tenure -q run --exec --wait 1m x -- echo ran", "81"),
        ("x", "tenure -q run --wait 1m -l y -l x -- echo ran", "81"),
        ("x", "tenure -q acquire --wait forever x", "81"),
        ("x", "tenure -q acquire --owner none x", "81"),
        ("x", "tenure -q wait --wait 1m x", "81"),
        ("x --exec", "tenure -q run --wait 1m x -- echo ran", "81"),
        (
            "--group g",
            "tenure -q run --group g --wait 1m -- echo ran",
            "81",
        ),
        // Nor does a run end its own ancestor.
        (
            "--group g --cancel-in-progress",
            "tenure -q run --group g --cancel-in-progress -- echo ran",
            "81",
        ),
        ("x", "tenure -q run --force --yes x -- echo ran", "81"),
        // The inner run may go on under the outer one.
        ("x", "tenure -q run --reentrant x -- echo ran", "ran 0"),
        // Another lock is another lock.
        ("x", "tenure -q run y -- echo ran", "ran 0"),
    ] {
        for before in [
            STRIPPED,
            "env",
            "setsid -w",
            "sh -c '\"$@\"; exit $?' sh",
            "timeout 30",
        ] {
            let line = format!(
                "tenure -q run {outer} -- sh -c '{} {inner} 2>err; echo $?' 2>&1 | tr '\\n' ' '; cat err >&2",
                before.replace('\'', "'\\''")
            );
            let (said, took) = script(&scene, &line);
            assert!(
                said.starts_with(expected),
                "{before} {inner} in {outer}: {said}"
            );
            assert!(
                took < Duration::from_secs(18),
                "{before} {inner} in {outer}: {took:?}"
            );
        }
    }
}

#[test]
fn what_is_no_part_of_the_run_waits_like_everybody() {
    let scene = Scene::new();
    // A daemon that the run started keeps the variables. It has the lock when the run has ended.
    scene.write(
        "late.sh",
        // A daemon once setsid(1) has ended: until then it stands below the command.
        "while grep -qs setsid /proc/$PPID/comm; do sleep 0.02; done; tenure -q run -w 20s x -- echo ran >late 2>&1; echo $? >>late",
    );
    let line = "tenure -q run x -- sh -c 'setsid -f sh late.sh; sleep 0.7'; \
                for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; grep -q '^[0-9]' late && break; done; cat late";
    let (said, _) = script(&scene, line);
    assert_eq!(said, "ran\n0\n", "a daemon");
    // Variables of a run that this caller does not descend from.
    let line = "tenure -q run x -- sh -c 'echo $TENURE_HELD >held; sleep 1' & sleep 0.4; \
                TENURE_HELD=$(cat held) tenure -q run -w 20s x -- echo ran; echo $?; wait";
    let (said, _) = script(&scene, line);
    assert_eq!(said, "ran\n0\n", "a stranger with the variables");
    // A part of a pipeline whose parent has ended is inside: the command waits for it.
    let line = "tenure -q run x -- sh -c '(tenure -q run -w 20s x -- echo ran 2>/dev/null; echo $? >&3) 3>&1 | cat' 2>&1";
    let (said, took) = script(&scene, line);
    assert_eq!(said, "81\n", "a pipeline");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn run_lasts_as_long_as_its_command_wherever_that_goes() {
    let scene = Scene::new();
    let mut rows = Vec::new();
    for (words, expected) in [
        ("setsid sh -c 'sleep 0.6; exit 9'", 9),
        ("sh -c 'exec setsid sh -c \"sleep 0.6; exit 9\"'", 9),
        ("bash -mc 'sleep 0.6; exit 9'", 9),
        ("bash -ic 'sleep 0.6; exit 9'", 9),
        ("env setsid sh -c 'sleep 0.6; exit 9'", 9),
        (
            "perl -MPOSIX -e 'POSIX::setsid() > 0 or exit 3; sleep 1; exit 9'",
            9,
        ),
        ("perl -e 'setpgrp(0, 0) or exit 3; sleep 1; exit 9'", 9),
    ] {
        for flags in [
            "job",
            "job --close",
            "job --wait-all",
            "job --max-runtime 20s",
            "--group g --cancel-in-progress",
        ] {
            rows.push((words, flags, expected));
        }
    }
    // Each with a lock of its own.
    std::thread::scope(|scope| {
        for (number, (words, flags, expected)) in rows.into_iter().enumerate() {
            let scene = &scene;
            scope.spawn(move || {
                let flags = flags.replace("job", &format!("job-{number}"));
                let flags = flags.replace(" g ", &format!(" g-{number} "));
                let line = format!("tenure -q run {flags} -- {words} 2>/dev/null; echo $?");
                let (said, took) = script(scene, &line);
                assert_eq!(said.trim(), expected.to_string(), "{flags} {words}");
                assert!(
                    took >= Duration::from_millis(500),
                    "{flags} {words}: {took:?}"
                );
            });
        }
    });
}

#[test]
fn command_in_a_session_of_its_own_is_ended_like_any_other() {
    let scene = Scene::new();
    for (words, ends) in [
        ("--max-runtime 500ms", 10),
        ("--max-runtime 500ms --wait-all", 10),
    ] {
        let line =
            format!("tenure -q run {words} job -- setsid sh -c 'sleep 30' 2>/dev/null; echo $?");
        let (said, took) = script(&scene, &line);
        assert_eq!(said.trim(), ends.to_string(), "{words}");
        assert!(took < Duration::from_secs(25), "{words}: {took:?}");
    }
    let line = "tenure -q run job -- setsid sh -c 'echo $$ >pid; sleep 30; true' 2>/dev/null & \
                sleep 0.5; kill $!; wait $!; echo $?; kill -0 $(cat pid) 2>/dev/null || echo gone";
    let (said, took) = script(&scene, line);
    assert_eq!(said, "143\ngone\n");
    assert!(took < Duration::from_secs(25), "{took:?}");
    // A newer run of the group ends it, and begins when it is gone.
    let line = "tenure -q run --group g --grace 25s -- setsid sh -c 'trap \"sleep 0.5; echo ended >>order; exit\" INT TERM; \
                while :; do sleep 0.1; done' 2>/dev/null & sleep 0.5; \
                tenure -q run --group g --cancel-in-progress -w 20s -- sh -c 'echo began >>order'; wait; cat order";
    let (said, _) = script(&scene, line);
    assert_eq!(said, "ended\nbegan\n");
}

#[test]
fn interrupts_that_one_process_sends_at_once_count_once() {
    let scene = Scene::new();
    std::thread::scope(|scope| {
        for round in 0..12 {
            let scene = &scene;
            scope.spawn(move || {
                let line = format!(
                    "timeout -s INT 0.3 tenure -q run x{round} -- sh -c 'trap \"echo asked >>a{round}\" INT; sleep 0.7; \
                     sleep 0.7; echo done >>a{round}' 2>/dev/null; cat a{round}; tenure check -q x{round}; echo $?"
                );
                let (said, _) = script(scene, &line);
                assert!(said.contains("done\n") && said.ends_with("0\n"), "round {round}: {said}");
            });
        }
    });
}

/// The run stays for what goes on under its lock, so what that starts is inside, whatever its session.
#[test]
fn what_goes_on_under_a_hold_is_inside_after_its_command_has_ended() {
    let scene = Scene::new();
    scene.write(
        "inner.sh",
        "sleep 0.8; timeout 8 tenure -q run x -w forever -- echo never 2>err; echo $? >code",
    );
    let line = "tenure -q run x -- sh -c 'setsid tenure -q run --reentrant x -- sh ./inner.sh & sleep 0.3'; cat code";
    let (said, took) = script(&scene, line);
    assert_eq!(said, "81\n");
    assert!(took < Duration::from_secs(7), "{took:?}");
}
