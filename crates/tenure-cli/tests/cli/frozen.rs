//! A waiter at the head of a line that does not act, and of which nobody sees that it is stopped: it is in another PID
//! namespace, as in a container that is paused.

use crate::hostile::in_namespaces;
use crate::support::Scene;

/// `frozen LOCK WORD PLACE` starts a waiter that writes the word and stops it in line, `held LOCK` a holder that
/// `ends LOCK` lets go, and `said` tells the exit code and the answer of a call.
const STAGE: &str = r#"
    all=
    trap 'kill -KILL $all 2>/dev/null || :' EXIT
    : >order
    until_true() {
        n=0
        until eval "$1"; do n=$((n+1)); [ $n -lt 600 ] || { echo "never: $1"; exit 9; }; sleep 0.05; done
    }
    at_place() { tenure check $1 --output json 2>/dev/null | grep -Eq "\"position\": ?$2[,}]"; }
    is_held() { tenure check $1 --output json 2>/dev/null | grep -Eq '"token": ?[0-9]'; }
    frozen() {
        unshare --kill-child=KILL --pid --fork --mount-proc tenure -q run $1 -w 100s -- sh -c "echo $2 >>order" &
        outer=$! all="$all $!"
        until_true "at_place $1 $3"
        pid=$(cat /proc/$outer/task/$outer/children)
        pid=${pid% }
        while kill -STOP $pid; sleep 0.05; grep -qs ' 1152921504606846976 1152921504606846976$' /proc/$pid/fdinfo/*; do
            kill -CONT $pid
            sleep 0.02
        done
        eval "$2=$pid"
    }
    held() {
        tenure -q run $1 -- sh -c "until [ -e $1.go ]; do sleep 0.02; done" &
        all="$all $!"
        until_true "is_held $1"
    }
    ends() { : >$1.go; until_true "! is_held $1"; }
    said() { rc=0; timeout 20 "$@" >out 2>&1 || rc=$?; echo "$rc $(tr '\n' ' ' <out)"; }
"#;

/// What a script says, or `None` where the tests are not root.
fn played(script: &str) -> Option<String> {
    let scene = Scene::new();
    let line = format!("cd \"$(dirname \"$TENURE_DIR\")\"\n{STAGE}\n{script}");
    let answer = in_namespaces(&scene, &["--mount"], &line)?;
    Some(answer.expect(0, "the script").stdout())
}

#[test]
fn all_frozen_waiters_cost_one_grace_together_and_keep_their_places() {
    let script = r#"
        held x; frozen x one 1; frozen x two 2; frozen x three 3
        tenure -q run x -w 100s -- sh -c 'echo first >>order; sleep 0.3' & first=$!
        until_true "at_place x 4"
        tenure -q run x -w 100s -- sh -c 'echo second >>order' & second=$!
        until_true "at_place x 5"
        ends x
        began=$(date +%s)
        wait $first $second
        took=$(( $(date +%s) - began ))
        [ $took -ge 8 ] && [ $took -lt 40 ] && echo "one grace" || echo "took $took"
        echo check $(said tenure check x)
        echo again $(said tenure run x -n -- echo at-once)
        kill -CONT $three; until_true "grep -q three order"
        kill -CONT $one; until_true "grep -q one order"
        kill -CONT $two; until_true "grep -q two order"
        echo order $(cat order)
    "#;
    let Some(said) = played(script) else { return };
    assert!(said.contains("one grace\n"), "{said}");
    assert!(said.contains("check 0 x is free"), "{said}");
    assert!(said.contains("again 0 at-once"), "{said}");
    assert!(said.contains("order first second three one two"), "{said}");
}

/// Every verb says that a waiter which does not take its turn holds nothing, and reaches it.
#[test]
fn each_verb_says_that_a_frozen_waiter_holds_nothing_and_reaches_it() {
    let script = r#"
        for x in refused forced taken aside asked; do held $x; frozen $x $x 1; done
        for x in refused forced taken aside asked; do ends $x; done
        sleep 3
        echo check $(said tenure check refused)
        tenure check refused --output json | tr -d ' \n'; echo
        echo list $(said tenure list)
        echo refused $(said tenure run refused -n -- true)
        echo forced $(said tenure run forced --force -n -- echo it-runs)
        echo taken $(said tenure acquire taken --force -n --owner none --request-id r1)
        echo aside $(said tenure force-release aside --yes)
        echo beside $(said tenure run aside -n -- echo it-runs)
        echo asked $(said tenure cancel asked)
        echo since $(said tenure run asked -n -- echo it-runs)
        kill -CONT $asked $aside $forced
        until_true "grep -q aside order && grep -q forced order"
        sleep 1
        echo order $(sort order)
    "#;
    let Some(said) = played(script) else { return };
    let line = |word: &str| {
        let mut lines = said.lines();
        let found = lines.find(|line| line.starts_with(word));
        found.unwrap_or_else(|| panic!("{word}: {said}")).to_owned()
    };
    for word in ["check 4", "refused 4"] {
        let line = line(word);
        assert!(line.contains("refused is not held"), "{line}");
        assert!(line.contains("does not take its turn"), "{line}");
    }
    assert!(said.contains("\"stopped\":false"), "{said}");
    assert!(line("list 0").contains("does not act"), "{said}");
    assert!(line("forced 0").contains("it-runs"), "{said}");
    let _ = line("taken 0");
    assert!(line("aside 0").contains("aside is not held"), "{said}");
    assert!(line("beside 0").contains("it-runs"), "{said}");
    assert!(line("asked 0").contains("asked is not held"), "{said}");
    assert!(line("since 0").contains("it-runs"), "{said}");
    assert_eq!(line("order"), "order aside forced", "{said}");
}

/// A container with two waiters is paused, or the machine sleeps: neither of them has seen the other one do nothing.
#[test]
fn a_waiter_that_was_frozen_as_well_passes_nobody_over() {
    let script = r#"
        held x; frozen x one 1
        tenure -q run x -w 100s -- sh -c 'echo second >>order' & second=$!
        until_true "at_place x 2"
        sleep 0.2
        kill -STOP $second
        ends x
        sleep 14
        kill -CONT $second
        sleep 2
        kill -CONT $one
        wait $second
        echo order $(cat order)
    "#;
    let Some(said) = played(script) else { return };
    assert!(said.contains("order one second"), "{said}");
}

/// A caller that does not wait sees the line once. By the list the turn has not been taken for a grace, so it looks twice.
#[test]
fn callers_that_do_not_wait_pass_a_frozen_waiter_after_the_grace() {
    let script = r#"
        held x; frozen x one 1; frozen x two 2; ends x
        sleep 11
        echo marks $(said tenure run x -n -- echo it-runs)
        echo wait $(said tenure wait x -w 9s)
        echo passes $(said tenure run x -n -- echo it-runs)
        kill -CONT $two; until_true "grep -q two order"
        kill -CONT $one; until_true "grep -q one order"
        echo order $(cat order)
    "#;
    let Some(said) = played(script) else { return };
    assert!(said.contains("marks 4"), "{said}");
    assert!(said.contains("wait 0"), "{said}");
    assert!(said.contains("passes 0 it-runs"), "{said}");
    assert!(said.contains("order two one"), "{said}");
}

/// Another process is in the middle of a change for so many seconds, or for ever: it has the guard of a lock.
const KEEPS: &str = r#"
    cat >keeps.py <<'PY'
import fcntl, struct, sys, time
file = open(sys.argv[1], "r+b")
guard = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << 60, 1, 0)
fcntl.fcntl(file, 37, guard)
open("kept", "w")
time.sleep(float(sys.argv[2]))
PY
    keeps() { python3 keeps.py "$TENURE_DIR/$1.tenure" $2 & keeper=$! all="$all $!"; until_true "test -e kept"; rm kept; }
    timed() { began=$(date +%s); said "$@"; took=$(( $(date +%s) - began )); }
"#;

/// A wait lasts as long as the caller said, whatever keeps it, and one that does not wait asks for five seconds.
#[test]
fn a_process_that_stopped_in_a_change_is_named_and_outlasted() {
    let script = format!(
        r"{KEEPS}
        tenure run x -- true
        keeps x 8
        echo waits $(said tenure run x -w 40s -- echo in) of $keeper
        keeps x 60
        timed tenure run x -n -- echo in >line; echo refused $(cat line) of $keeper in $took
        timed tenure run x -w 2s -- echo in >line; echo over $(cat line) in $took
        rc=0; began=$(date +%s); timeout -s INT 2 tenure -q run x -w 60s -- echo in || rc=$?
        echo interrupted $rc in $(( $(date +%s) - began ))
        "
    );
    let Some(said) = played(&script) else { return };
    let line = |word: &str| {
        let mut lines = said.lines();
        let found = lines.find(|line| line.starts_with(word));
        found.unwrap_or_else(|| panic!("{word}: {said}")).to_owned()
    };
    for word in ["waits 0", "refused 12"] {
        let line = line(word);
        let (_, keeper) = line.rsplit_once(" of ").expect("who keeps it");
        let keeper = keeper.split(' ').next().expect("a number");
        let named = format!("PID {keeper} has been in the middle of a change");
        assert!(line.contains(&named), "{line}");
    }
    assert!(line("waits 0").contains(" in "), "{said}");
    let seconds = |word: &str| -> u64 {
        let line = line(word);
        let (_, took) = line.rsplit_once(" in ").expect("a time");
        took.parse().expect("seconds")
    };
    assert!((4..12).contains(&seconds("refused 12")), "{said}");
    assert!(seconds("over 12") < 5, "{said}");
    assert!(seconds("interrupted") < 12, "{said}");
}

/// A wait that is over while a process is stopped in a change ends at its time, whatever it waits for: a lock that is seen to
/// be held refuses as always. A claim that cannot leave the line in time leaves by dying.
#[test]
fn a_wait_ends_at_its_time_beside_a_process_that_stopped_in_a_change_table() {
    let script = format!(
        r#"{KEEPS}
        bounded() {{
            # bounded CODE MOST_MS CALL...
            must=$1 most=$2; shift 2
            rc=0; began=$(date +%s%N)
            tenure -q "$@" >"said$must-$most" 2>&1 || rc=$?
            took=$(( ($(date +%s%N) - began) / 1000000 ))
            [ $rc = $must ] && [ $took -lt $most ] || echo "WRONG $*: $rc after $took ms: $(cat "said$must-$most")"
            echo "asked $*"
        }}
        held held
        tenure -q run --group g -- sh -c 'until [ -e held.go ]; do sleep 0.02; done' &
        tenure run loose -- true; tenure run free -- true
        until_true "tenure check --group g --output json | grep -Eq '.token.: ?[0-9]'"
        bounded 4 9000 run held -w 4s -- true >inline & inline=$!
        until_true "at_place held 1"
        for file in "$TENURE_DIR"/*.tenure; do
            file=${{file##*/}}
            case $file in free.tenure) ;; *) keeps "${{file%.tenure}}" 100 ;; esac
        done
        bounded 4 3500 run held -w 1s -- true
        bounded 4 3500 run held --shared -w 1s -- true
        bounded 4 3500 run --group g -w 1s -- true
        bounded 4 3500 run free --lock held -w 1s -- true
        bounded 4 3500 acquire held --owner none --ttl 60s -w 1s
        bounded 4 3500 acquire held --owner none --ttl 60s -w 1s --ticket auto
        bounded 4 3500 wait held -w 1s
        bounded 12 3500 run loose -w 1s -- true
        bounded 12 3500 run loose --slots 4 -w 1s -- true
        bounded 12 3500 acquire loose --owner none --ttl 60s -w 1s
        wait $inline; cat inline; : >held.go
        "#
    );
    let Some(said) = played(&script) else { return };
    assert!(!said.contains("WRONG"), "{said}");
    assert_eq!(said.matches("asked").count(), 11, "{said}");
}

/// A waiter that stands in line already waits on as well.
#[test]
fn a_waiter_in_line_outlasts_a_process_that_stopped_in_a_change() {
    let script = format!(
        r#"{KEEPS}
        tenure run line -- sleep 3 &
        until_true "is_held line"
        tenure -q run line -w 60s -- echo turn >turn &
        until_true "at_place line 1"
        keeps line 9
        until_true "grep -q turn turn"
        echo turn $(cat turn)
        "#
    );
    let Some(said) = played(&script) else { return };
    assert!(said.contains("turn turn"), "{said}");
}
