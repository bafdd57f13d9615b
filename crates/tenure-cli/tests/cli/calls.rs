//! What a call means: verbs × what it names × modes × how the lock stands. Each row says what is answered, what waits and
//! what is ended; whatever it does not name goes on.

use crate::support::{Answer, Gate, Held, Scene, Started, answer, eventually, is_alive, timed};
use rustix::process::Signal;
use std::process::Stdio;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Exclusive,
    Shared,
    Slots,
    /// A pool of two members, which tenure.toml lists.
    Members,
    /// The lock of a group.
    Group,
}

/// How the lock stands before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Free,
    /// A single holder, beside whom there is room.
    Room,
    /// No room for a claim of this mode.
    Full,
    /// No room for a claim of this mode, and a waiter.
    Waiting,
    /// No room, and the supervisors of the holders are dead.
    Orphaned,
}

use As::{Exclusive, Group, Members, Shared, Slots};
use Stands::{Free, Full, Orphaned, Room, Waiting};

/// A lock in use.
struct Stage {
    scene: Scene,
    of: As,
    holders: Vec<Held>,
    waiter: Option<Started>,
}

impl Stage {
    fn new(of: As, stands: Stands) -> Self {
        let scene = Scene::new();
        if of == Members {
            scene.write("tenure.toml", "[lock.x]\nmembers = [\"one\", \"two\"]\n");
        }
        let mut stage = Self {
            scene,
            of,
            holders: Vec::new(),
            waiter: None,
        };
        let full = match of {
            Exclusive | Group | Shared => 1,
            Slots | Members => 2,
        };
        let holders = match stands {
            Free => 0,
            Room => 1,
            Full | Waiting | Orphaned => full,
        };
        for number in 0..holders {
            // A reader has no room beside a writer.
            let flags = match (of, stands) {
                (Shared, Full | Waiting | Orphaned) => &["x"][..],
                _ => of.flags(),
            };
            let held = stage.holds(&format!("h{number}"), flags);
            stage.holders.push(held);
        }
        if stands == Waiting {
            let id = ["-q", "-w", "60s", "--request-id", "waiter"];
            let words = ["run"].iter().chain(of.flags()).chain(&id);
            let words: Vec<_> = words.chain(&["--", "true"]).copied().collect();
            let mut command = stage.tenure(&words);
            stage.waiter = Some(Started::piped(&mut command));
            stage.scene.until_queued(of.name(), 1);
        }
        if stands == Orphaned {
            for held in &stage.holders {
                stage.scene.until_named(of.name());
                held.started.signal(Signal::KILL);
            }
            eventually("the holders to be orphans", || {
                let facts = stage.scene.check(of.name());
                let others = facts["other_holders"].as_array();
                let others = others.map_or(&[][..], |others| others);
                let mut all = others.iter().chain([&facts["holder"]]);
                all.all(|holder| holder["orphaned"] == true)
            });
        }
        stage
    }

    fn tenure(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.scene.tenure(words);
        command.current_dir(self.scene.root());
        command
    }

    /// A run with these flags, whose command has begun.
    fn holds(&self, id: &str, flags: &[&str]) -> Held {
        let gate = Gate::new(&self.scene, id);
        let words = ["run", "-q", "--request-id", id, "--grace", "5s"];
        let words: Vec<_> = words
            .iter()
            .chain(flags)
            .chain(&["--", "sh", "-c"])
            .copied()
            .collect();
        let mut command = self.tenure(&words);
        command.arg(gate.script(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Started::new(&mut command);
        let command = gate.entered();
        Held {
            started,
            command,
            gate,
        }
    }

    /// A call about this lock.
    fn call(&self, words: &[&str]) -> Answer {
        answer(&mut self.tenure(words))
    }

    /// The call with the lock's flags behind its first word, and then these.
    fn verb(&self, verb: &str, rest: &[&str]) -> Answer {
        let words: Vec<_> = [verb]
            .iter()
            .chain(self.of.flags())
            .chain(rest)
            .copied()
            .collect();
        self.call(&words)
    }

    /// The call with the lock's name alone.
    fn named(&self, verb: &str, rest: &[&str]) -> Answer {
        let name = self.of.target();
        let words: Vec<_> = [verb].iter().chain(name).chain(rest).copied().collect();
        self.call(&words)
    }

    /// Ids of the holders whose commands are at work.
    fn at_work(&self) -> Vec<usize> {
        let all = self.holders.iter().enumerate();
        let at_work = all.filter(|(_, held)| is_alive(held.command));
        at_work.map(|(index, _)| index).collect()
    }
}

impl As {
    /// What names the lock and its mode, for verbs that take a mode.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Exclusive | Members => &["x"],
            Shared => &["x", "--shared"],
            Slots => &["x", "--slots", "2"],
            Group => &["--group", "G"],
        }
    }

    /// What names the lock.
    fn target(self) -> &'static [&'static str] {
        match self {
            Group => &["--group", "g"],
            _ => &["x"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Group => "g",
            _ => "x",
        }
    }
}

/// Everything that exists of modes and standings.
fn rows() -> Vec<(As, Stands)> {
    let mut rows = Vec::new();
    for of in [Exclusive, Shared, Slots, Members, Group] {
        for stands in [Free, Room, Full, Waiting, Orphaned] {
            let has_room = matches!(of, Shared | Slots | Members);
            if stands != Room || has_room {
                rows.push((of, stands));
            }
        }
    }
    rows
}

/// No question, refusal or skip ends anything, and each answers for the mode that is asked about.
#[test]
fn what_a_call_that_does_not_wait_is_answered() {
    for (of, stands) in rows() {
        let stage = Stage::new(of, stands);
        let (here, at_work) = (format!("{of:?} {stands:?}"), stage.at_work());
        let gets_it = matches!(stands, Free | Room);
        let code = if gets_it { 0 } else { 4 };
        let _ = stage
            .verb("check", &[])
            .expect(code, &format!("check, {here}"));
        let _ = stage
            .verb("wait", &["-n"])
            .expect(code, &format!("wait, {here}"));
        let ran = stage.scene.path("ran");
        let touch = ["--", "touch", "ran"];
        let words: Vec<_> = ["--skip"].iter().chain(&touch).copied().collect();
        let _ = stage
            .verb("run", &words)
            .expect(0, &format!("run --skip, {here}"));
        assert_eq!(ran.exists(), gets_it, "run --skip, {here}");
        // A run in a group waits in any case.
        if of != Group {
            let words: Vec<_> = ["-n"].iter().chain(&touch).copied().collect();
            let _ = stage
                .verb("run", &words)
                .expect(code, &format!("run -n, {here}"));
        }
        let words = ["-n", "--owner", "none", "--request-id", "mine"];
        let _ = stage
            .verb("acquire", &words)
            .expect(code, &format!("acquire -n, {here}"));
        if gets_it {
            let _ = stage
                .named("release", &["--request-id", "mine"])
                .expect(0, &here);
        }
        let (release, beat, force) = match stands {
            Free => (0, 80, 0),
            Room | Full | Waiting | Orphaned => (6, 6, 4),
        };
        let _ = stage
            .named("release", &[])
            .expect(release, &format!("release, {here}"));
        let _ = stage
            .named("heartbeat", &[])
            .expect(beat, &format!("heartbeat, {here}"));
        let _ = stage
            .named("force-release", &["--yes"])
            .expect(force, &format!("force-release, {here}"));
        let _ = stage
            .named("cancel", &["--request-id", "nobody"])
            .expect(5, &here);
        let orphan = match stands {
            Free | Orphaned => 5,
            Room | Full | Waiting => 4,
        };
        let words = ["--orphan", "--request-id", "nobody"];
        let _ = stage
            .named("cancel", &words)
            .expect(orphan, &format!("cancel --orphan, {here}"));
        assert_eq!(stage.at_work(), at_work, "nothing is ended, {here}");
        let waits = stage.scene.check(of.name())["queue"]
            .as_array()
            .map(Vec::len);
        let waiters = usize::from(stage.waiter.is_some());
        assert_eq!(waits, Some(waiters), "and no waiter leaves, {here}");
    }
}

/// A call that ends others ends as many as it needs, the oldest first, and no waiter.
#[test]
fn who_is_ended_by_a_call_that_ends_others() {
    for (of, stands) in rows() {
        if stands == Orphaned {
            continue;
        }
        let here = format!("{of:?} {stands:?}");
        let mut stage = Stage::new(of, stands);
        let (before, after) = match (of, stands) {
            (_, Free) => (vec![], vec![]),
            (_, Room) => (vec![0], vec![0]),
            // The waiter has its turn first, so the call needs a second slot.
            (Slots | Members, Waiting) => (vec![0, 1], vec![]),
            (Slots | Members, _) => (vec![0, 1], vec![1]),
            (Exclusive | Shared | Group, _) => (vec![0], vec![]),
        };
        assert_eq!(stage.at_work(), before, "{here}");
        // In a group the newest replaces the one that waits; elsewhere the line is kept.
        let words: &[&str] = match of {
            Group => &["--cancel-in-progress"],
            _ => &["--force"],
        };
        let words: Vec<_> = ["-q", "-w", "30s"]
            .iter()
            .chain(words)
            .chain(&["--", "true"])
            .copied()
            .collect();
        let _ = stage.verb("run", &words).expect(0, &here);
        // The waiter's slot may come to the call before the second holder, which is asked as well, has ended.
        eventually(&format!("{here}: {after:?} to be at work"), || {
            stage.at_work() == after
        });
        if let Some(waiter) = stage.waiter.take() {
            let code = if of == Group { 79 } else { 0 };
            let _ = waiter.finish().expect(code, &here);
        }
    }
}

/// `cancel` without an id asks all that hold, with an id one run, waiting or working.
#[test]
fn who_is_ended_by_a_cancel() {
    for (of, stands) in rows() {
        let here = format!("{of:?} {stands:?}");
        let mut stage = Stage::new(of, stands);
        let before = stage.at_work();
        if stands == Orphaned {
            let _ = stage.named("cancel", &[]).expect(4, &here);
            assert_eq!(stage.at_work(), before, "{here}");
            let _ = stage
                .named("cancel", &["--orphan", "--grace", "2s"])
                .expect(0, &here);
            eventually("the orphans to be gone", || stage.at_work().is_empty());
            let _ = stage.verb("check", &[]).expect(0, &here);
            continue;
        }
        if let Some(waiter) = stage.waiter.take() {
            let _ = stage
                .named("cancel", &["--request-id", "waiter"])
                .expect(0, &here);
            let _ = waiter.finish().expect(79, &here);
            assert_eq!(stage.at_work(), before, "{here}");
        }
        let Some(last) = before.last() else {
            let _ = stage.named("cancel", &[]).expect(5, &here);
            continue;
        };
        let id = format!("h{last}");
        let _ = stage
            .named("cancel", &["--request-id", &id])
            .expect(0, &here);
        let rest = &before[..before.len() - 1];
        eventually("that one to end", || stage.at_work() == rest);
        if rest.is_empty() {
            // The command has ended a little before its hold.
            eventually("its hold to end", || stage.verb("check", &[]).code() == 0);
        }
        let all = stage.named("cancel", &[]);
        let _ = all.expect(if rest.is_empty() { 5 } else { 0 }, &here);
        eventually("the others to end", || stage.at_work().is_empty());
    }
}

/// What ends others belongs to NAME: no holder of a further lock is ended, and none of its waiters is replaced.
#[test]
fn a_further_lock_is_only_waited_for() {
    for flags in [
        &["--force"][..],
        &["--force", "--yes"],
        &["--queue", "single", "--cancel-in-progress"],
        &["--slots", "2", "--force"],
        &["--group", "g", "--cancel-in-progress"],
    ] {
        let stage = Stage::new(Exclusive, Free);
        let further = stage.holds("further", &["db"]);
        let wait = [
            "run",
            "-q",
            "db",
            "-w",
            "60s",
            "--request-id",
            "waiter",
            "--",
            "true",
        ];
        let waiter = Started::piped(&mut stage.tenure(&wait));
        stage.scene.until_queued("db", 1);
        let words = ["run", "-q", "x", "-l", "db", "-w", "500ms"];
        let words: Vec<_> = words
            .iter()
            .chain(flags)
            .chain(&["--", "true"])
            .copied()
            .collect();
        let _ = stage.call(&words).expect(4, &format!("{flags:?}"));
        assert!(is_alive(further.command), "{flags:?}");
        let _ = further.open().expect(0, "it was not asked");
        let _ = waiter.finish().expect(0, "it was not replaced");
    }
}

/// What a run that holds the lock is answered about it from inside: it does not wait for itself.
#[test]
fn what_a_holder_is_answered_about_its_own_lock() {
    for of in [Exclusive, Shared, Slots, Members, Group] {
        let stage = Stage::new(of, Free);
        let here = format!("{of:?}");
        let inside = |verb: &str, rest: &str| {
            let flags = of.flags().join(" ");
            let line = format!("tenure {verb} {flags} {rest}");
            stage.verb("run", &["-q", "--", "sh", "-c", &line])
        };
        let _ = inside("check", "").expect(0, &here);
        // What `wait` says there is room for, `run` takes.
        let _ = inside("wait", "-w forever").expect(81, &format!("wait, {here}"));
        let _ = inside("run", "-w 5s -- true").expect(81, &format!("run, {here}"));
        let line = format!("tenure heartbeat {}", of.target().join(" "));
        let _ = stage
            .verb("run", &["-q", "--", "sh", "-c", &line])
            .expect(0, &here);
    }
}

/// An owner that holds a lock by `acquire` does not wait for itself without end, and two owners do not wait for each
/// other.
#[test]
fn owners_of_acquired_locks_do_not_wait_for_ever() {
    let scene = Scene::new();
    let own = answer(scene.program("sh").current_dir(scene.root()).args(["-c",
        "tenure acquire x >said; tenure -q wait x -w forever; echo $?; tenure -q wait x -w 100ms; echo $?
         tenure release x >>said",
    ]));
    assert_eq!(own.expect(0, "it goes on").stdout(), "81\n4\n");
    let script = "tenure -q acquire $1; touch $1.held; until [ -e $2.held ]; do sleep .01; done
         verb=$3 other=$2 own=$1; shift 3; tenure -q $verb $other -w forever \"$@\"; code=$?; tenure -q release $other 2>/dev/null; tenure -q release $own; exit $code";
    for (verb, rest) in [("acquire", ""), ("run", "-- true")] {
        let scene = Scene::new();
        let start = |one: &str, other: &str| {
            let mut command = scene.program("sh");
            command.current_dir(scene.root());
            command.args(["-c", &format!("{script} "), "sh", one, other, verb]);
            command
                .args((!rest.is_empty()).then_some("--"))
                .args((!rest.is_empty()).then_some("true"));
            Started::piped(&mut command)
        };
        let both = [start("a", "b"), start("b", "a")];
        let mut codes = both.map(|one| one.finish().code());
        codes.sort_unstable();
        assert_eq!(codes, [0, 81], "{verb}");
    }
}

/// What a sibling holds in the name of the same owner proves no circle: the sibling gives it back.
#[test]
fn a_siblings_hold_is_no_circle() {
    let scene = Scene::new();
    scene.write(
        "Makefile",
        "all: one two\none:\n\t@tenure -q acquire a --request-id one >/dev/null\n\
         \t@until [ -e two.has ]; do sleep .01; done\n\
         \t@tenure -q run b -w forever -- touch one.got\n\t@tenure -q release a --request-id one >/dev/null\n\
         two:\n\t@tenure -q acquire c --request-id two >/dev/null\n\t@touch two.has\n\t@sleep 3\n\
         \t@tenure -q release c --request-id two >/dev/null\n",
    );
    let mut other = scene.tenure(["run", "-q", "b", "--", "sh", "-c"]);
    other.current_dir(scene.root());
    let line =
        "touch b.has; until [ -e two.has ]; do sleep .01; done; tenure -q run c -w forever -- true";
    let other = Started::piped(other.arg(line));
    eventually("b to be held", || scene.path("b.has").exists());
    let mut make = scene.program("make");
    make.current_dir(scene.root()).args(["-j2", "all"]);
    let _ = answer(&mut make).expect(0, "nobody waits for ever");
    assert!(scene.path("one.got").exists());
    let _ = other.finish().expect(0, "it got c");
}

/// A reader that waits is woken when the writer before it leaves the line.
#[test]
fn wait_ends_when_the_waiter_before_it_leaves() {
    let stage = Stage::new(Shared, Room);
    let writer = [
        "run",
        "-q",
        "x",
        "-w",
        "60s",
        "--request-id",
        "writer",
        "--",
        "true",
    ];
    let writer = Started::piped(&mut stage.tenure(&writer));
    stage.scene.until_queued("x", 1);
    let waiting = Started::piped(&mut stage.tenure(&["wait", "x", "-s", "-w", "60s"]));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _ = stage
        .named("cancel", &["--request-id", "writer"])
        .expect(0, "asked");
    let (ended, took) = timed(|| waiting.finish());
    let _ = ended.expect(0, "there is room");
    assert!(took < std::time::Duration::from_secs(5), "at once");
    let _ = writer.finish().expect(79, "asked");
}

/// What `cancel` promises of a kill is true, or is not said.
#[test]
fn a_kill_is_promised_only_where_a_supervisor_does_it() {
    let stage = Stage::new(Exclusive, Full);
    let supervisor = stage.holders[0].started.pid();
    crate::support::send(supervisor, Signal::STOP);
    eventually("it to be stopped", || {
        crate::support::has_stopped(supervisor)
    });
    let said = stage
        .named("cancel", &["--grace", "0s", "--output", "json"])
        .expect(0, "asked")
        .json();
    assert_eq!(
        said["data"]["asked"][0]["killed_at"],
        serde_json::Value::Null,
        "{said}"
    );
    assert_eq!(said["data"]["asked"][0]["supervised"], false, "{said}");
    crate::support::send(supervisor, Signal::CONT);
    eventually("its command to end", || stage.at_work().is_empty());
}

/// A shared holder takes up a slot, and `wait` and `run` agree inside a run that has one.
#[test]
fn shared_holder_beside_slots_counts_as_one() {
    let scene = Scene::new();
    let acquire = [
        "acquire",
        "-q",
        "p",
        "-s",
        "--owner",
        "none",
        "--request-id",
        "r",
    ];
    let _ = scene.run(acquire).expect(0, "shared");
    let slots = |of: &str, held: u64, room: bool| {
        let said = scene.run(["check", "p", "--slots", of, "--output", "json"]);
        let said = if room {
            said.expect(0, "room").json()["data"].take()
        } else {
            said.expect(4, "none").json()["error"]["context"].take()
        };
        assert_eq!(said["room"]["slots"]["held"], held, "{said:#}");
        assert_eq!(said["room"]["slots"]["room"], room, "{said:#}");
        assert_eq!(said["room"]["shared"], held < 2, "{said:#}");
    };
    slots("2", 1, true);
    slots("1", 1, false);
    let acquire = [
        "acquire", "-q", "p", "--slots", "2", "--owner", "none", "-n",
    ];
    let _ = scene.run(acquire).expect(0, "the second");
    slots("2", 2, false);
    let line = "tenure wait p --slots 2 -n; echo $?; tenure run p --slots 2 -n -- true; echo $?";
    for mode in [&["--slots", "2"][..], &["-s"]] {
        let scene = Scene::new();
        let words = [&["run", "p"], mode, &["--", "sh", "-c", line]].concat();
        let said = scene.run(words).expect(0, "it began");
        assert_eq!(said.stdout(), "81\n81\n", "{mode:?}: {}", said.stderr());
        assert!(
            said.stderr().contains("a run holds a lock once"),
            "{mode:?}"
        );
    }
}

/// A program that holds by the library has no command that somebody could end.
#[test]
fn cancel_of_a_program_with_a_guard_says_that_it_is_told() {
    let scene = Scene::new();
    let locks = tenure::guard::LockManager::new(scene.locks()).expect("a folder");
    let guard = locks.acquire("x").expect("a free lock");
    let said = scene.run(["cancel", "x"]).expect(0, "asked");
    let told = "is told, and its work ends when it looks; no command is ended";
    assert!(said.stdout().contains(told), "{}", said.stdout());
    assert!(!said.stdout().contains("ends its command"));
    eventually("the guard to show it", || guard.should_stop());
}
