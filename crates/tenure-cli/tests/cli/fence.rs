//! `fence check`: whether a token is still good, asked of the lock and of the resource.

use crate::support::{Answer, Scene, Started, answer, eventually, read_lines, send, state};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure_os::process::group_of;

/// A scene with a guard.
struct Resource {
    scene: Scene,
    mark: PathBuf,
}

impl Resource {
    fn new() -> Self {
        let scene = Scene::new();
        let mark = scene.path("mark");
        Self { scene, mark }
    }

    /// A resource whose guard has seen this.
    fn with(content: &str) -> Self {
        let resource = Self::new();
        fs::write(&resource.mark, content).expect("a mark");
        fs::set_permissions(&resource.mark, fs::Permissions::from_mode(0o600)).expect("a mode");
        resource
    }

    fn ask(&self, token: &str) -> Answer {
        self.scene
            .run(["fence", "check", token, "--guard", word(&self.mark)])
    }

    fn mark(&self) -> Option<String> {
        fs::read_to_string(&self.mark).ok()
    }

    /// What stands beside the mark.
    fn has_next(&self) -> bool {
        self.scene.path("mark.next").exists()
    }
}

fn word(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn token_of(scene: &Scene, name: &str) -> u64 {
    scene.check(name)["holder"]["token"]
        .as_u64()
        .expect("a token")
}

#[test]
fn the_lock_knows_its_live_tokens_alone() {
    let scene = Scene::new();
    let ask = |token: u64| scene.run(["fence", "check", &token.to_string(), "--name", "x"]);
    let _ = ask(5).expect(80, "it was never held");
    assert!(!scene.locks().exists(), "asking creates nothing");

    let words = ["acquire", "x", "--owner", "none", "--request-id"];
    let _ = scene.run(words.iter().chain(&["one"])).expect(0, "free");
    let first = token_of(&scene, "x");
    let good = ask(first).expect(0, "it holds");
    assert_eq!(good.said(), "exit status: 0\nstdout: \nstderr: ");
    for other in [first - 1, first + 1] {
        let said = ask(other).expect(80, "no hold has it").stderr();
        assert!(
            said.contains(&format!(
                "no live hold of x has fencing token {other}: x is held by"
            )),
            "{said}"
        );
    }
    let _ = scene
        .run(["release", "x", "--request-id", "one"])
        .expect(0, "released");
    let _ = ask(first).expect(80, "it was given back");
    let _ = scene.run(words.iter().chain(&["two"])).expect(0, "free");
    let _ = ask(first).expect(80, "a newer one was granted");
    let _ = ask(token_of(&scene, "x")).expect(0, "the newer one");
}

#[test]
fn a_hold_that_was_left_behind_is_over_before_anybody_takes_it() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--ttl", "1ms"];
    let _ = scene.run(words).expect(0, "free");
    let token = token_of(&scene, "x").to_string();
    eventually("the ttl to run out", || scene.standing("x") == "stale");
    let said = scene.run(["fence", "check", &token, "--name", "x"]);
    let said = said.expect(80, "its ttl is over").stderr();
    assert!(said.contains("is over"), "{said}");
}

#[test]
fn a_command_asks_about_its_own_locks_without_naming_them() {
    let scene = Scene::new();
    let under = |words: &[&str], line: &str| {
        let words = ["run"].iter().chain(words);
        scene.run(words.chain(&["--", "sh", "-c", line]))
    };
    let _ = under(&["x"], "tenure fence check").expect(0, "it holds x");
    let both = "tenure fence check && tenure fence check --name y && tenure fence check --name x";
    let _ = under(&["x", "-l", "y"], both).expect(0, "it holds x and y");
    let said = under(&["x"], "tenure fence check --name z").expect(2, "it has no token of z");
    assert!(
        said.stderr().contains("no fencing TOKEN is given"),
        "{}",
        said.said()
    );
    let _ = under(&["x"], "tenure run y -- tenure fence check --name x").expect(0, "the outer x");
    let late = under(&["x"], "TENURE_TOKEN=5 tenure fence check");
    let _ = late.expect(80, "the variable counts");
}

#[test]
fn every_one_of_several_live_tokens_is_good() {
    for flags in [&["--shared"][..], &["--slots", "3"]] {
        let scene = Scene::new();
        for id in ["one", "two"] {
            let words = ["acquire", "x", "--owner", "none", "--request-id", id];
            let _ = scene.run(words.iter().chain(flags)).expect(0, id);
        }
        let view = scene.check("x");
        let of = |holder: &Value| holder["token"].as_u64().expect("a token").to_string();
        let mut tokens = vec![of(&view["holder"])];
        tokens.extend(view["other_holders"].as_array().unwrap().iter().map(of));
        assert_eq!(tokens.len(), 2, "{view}");
        for token in tokens {
            let _ = scene
                .run(["fence", "check", &token, "--name", "x"])
                .expect(0, "a live hold has it");
        }
    }
}

/// The clock is behind, and a restart has emptied the folder of the locks: the only rightful holder has the lower token.
#[test]
fn a_refusal_that_the_clock_may_explain_names_the_way_out() {
    let resource = Resource::new();
    let behind = || {
        let mut call = resource.scene.tenure(["run", "x", "--", "sh", "-c"]);
        call.arg("exec tenure fence check --guard \"$GUARD\"")
            .env("GUARD", &resource.mark);
        call
    };
    let _ = answer(&mut behind()).expect(0, "the first holder");
    fs::remove_dir_all(resource.scene.locks()).expect("a restart empties it");
    // A day behind, from the beginning on.
    let steps = resource.scene.write("steps", "0 -86400000000\n");
    let mut early = behind();
    let early = answer(early.env("TENURE_TESTING_CLOCK", &steps));
    let said = early.expect(80, "the token fell").stderr();
    assert!(said.contains("ahead of this machine's clock"), "{said}");
    assert!(
        said.contains("set it right and take the lock anew"),
        "{said}"
    );
    let _ = answer(&mut behind()).expect(0, "the clock is right, and the lock was taken anew");
}

#[test]
fn what_cannot_be_found_out_is_no_yes_and_no_no() {
    let scene = Scene::new();
    let _ = scene.run(["run", "x", "--", "true"]).expect(0, "a lock");
    fs::write(scene.locks().join("x.tenure"), "no record\n").expect("damage");
    let said = scene.run(["fence", "check", "5", "--name", "x"]);
    let said = said.expect(12, "it cannot be read").stderr();
    assert!(said.contains("cannot be read"), "{said}");
}

#[test]
fn the_guard_keeps_the_highest_token() {
    let resource = Resource::new();
    let first = resource.ask("7").expect(0, "nothing was seen yet");
    assert_eq!(first.said(), "exit status: 0\nstdout: \nstderr: ");
    assert_eq!(resource.mark().as_deref(), Some("7\n"));
    let mode = fs::metadata(&resource.mark).expect("a mark").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let _ = resource.ask("7").expect(0, "the same holder again");
    let said = resource.ask("6").expect(80, "a smaller one").stderr();
    assert!(
        said.contains("token 6 is too old") && said.contains("has seen 7"),
        "{said}"
    );
    assert_eq!(resource.mark().as_deref(), Some("7\n"), "left as it was");
    let _ = resource
        .ask("9007199254740991")
        .expect(0, "the highest there is");
    let _ = resource.ask("7").expect(80, "smaller now");
    assert!(!resource.has_next(), "nothing stays beside it");
    assert!(!resource.scene.locks().exists(), "no lock folder is needed");
}

#[test]
fn a_mark_that_is_no_token_is_not_taken_for_a_low_one() {
    for content in [
        "",
        "\n",
        "0\n",
        "-1\n",
        "7 \n",
        "7\n\n",
        "7\n8\n",
        "0x7\n",
        "seven\n",
        "\0\0\0\0",
        "9007199254740992\n",
        "00000000000000000000000000000000000000000000000007\n",
    ] {
        let resource = Resource::with(content);
        let said = resource.ask("9").expect(12, content).stderr();
        assert!(
            said.contains("cannot be read as a guard"),
            "{content:?}: {said}"
        );
        assert_eq!(resource.mark().as_deref(), Some(content), "left as it was");
    }
    let by_hand = Resource::with("7");
    let _ = by_hand.ask("6").expect(80, "a mark without a newline");
    let _ = by_hand.ask("8").expect(0, "the same");
}

#[test]
fn a_guard_that_others_could_lower_is_refused() {
    let refused = |resource: &Resource, why: &str| {
        let said = resource.ask("9").expect(7, why).stderr();
        assert!(said.contains(why), "{said}");
    };
    let link = Resource::new();
    let elsewhere = link.scene.write("elsewhere", "7\n");
    symlink(&elsewhere, &link.mark).expect("a link");
    refused(&link, "it is a link");
    assert_eq!(fs::read_to_string(elsewhere).expect("a file"), "7\n");

    let planted = Resource::with("7\n");
    symlink("elsewhere", planted.scene.path("mark.next")).expect("a link");
    refused(&planted, "it is a link");
    assert!(!planted.scene.path("elsewhere").exists(), "not followed");

    let twice = Resource::with("7\n");
    fs::hard_link(&twice.mark, twice.scene.path("twin")).expect("a second name");
    refused(&twice, "second name");

    let folder = Resource::new();
    fs::create_dir(&folder.mark).expect("a folder");
    refused(&folder, "not a regular file");

    let fifo = Resource::new();
    let made = fifo.scene.program("mkfifo").arg(&fifo.mark).status();
    assert!(made.expect("mkfifo").success());
    refused(&fifo, "not a regular file");

    let open = Resource::with("7\n");
    fs::set_permissions(&open.mark, fs::Permissions::from_mode(0o620)).expect("a mode");
    refused(&open, "others may write");

    let anybody = Resource::with("7\n");
    let place = anybody.scene.root().to_owned();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).expect("a mode");
    refused(&anybody, "sticky");
}

/// Splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn eight_checkers_at_once_lose_no_update_and_never_lower_the_mark() {
    const CHECKERS: u64 = 8;
    const ROUNDS: u64 = 20;
    let resource = Resource::new();
    let over = AtomicBool::new(false);
    // A look afterwards would miss a mark that falls back.
    let watch = || {
        let mut seen = 0;
        while !over.load(Ordering::SeqCst) {
            if let Some(text) = resource.mark() {
                let mark = text.trim_end().parse::<u64>().expect("a whole mark");
                assert!(mark >= seen, "the mark fell from {seen} to {mark}");
                seen = mark;
            }
        }
    };
    let check = |seed: u64| {
        let mut state = seed;
        let mut answers = Vec::new();
        for round in 1..=ROUNDS {
            // Tokens rise on the whole, so that the mark is raised again and again.
            let token = round * 100 + random(&mut state) % 400;
            let mark = word(&resource.mark);
            let text = token.to_string();
            let words = ["fence", "check", &text, "--guard", mark, "--output", "json"];
            let answer = resource.scene.run(words);
            assert!(matches!(answer.code(), 0 | 80), "{}", answer.said());
            answers.push((token, answer.json()));
        }
        answers
    };
    let answers: Vec<(u64, Value)> = std::thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let checkers: Vec<_> = (0..CHECKERS)
            .map(|n| scope.spawn(move || check(n)))
            .collect();
        let answers = checkers.into_iter().flat_map(|one| one.join().unwrap());
        let answers = answers.collect();
        over.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
        answers
    });
    let highest = answers.iter().map(|(token, _)| *token).max().unwrap();
    assert_eq!(resource.mark(), Some(format!("{highest}\n")));
    let recorded: BTreeMap<u64, Option<u64>> = answers
        .iter()
        .filter(|(_, answer)| answer["data"]["recorded"] == true)
        .map(|(token, answer)| (*token, answer["data"]["before"].as_u64()))
        .collect();
    // Each update replaced the one before it, and none another one.
    let mut before = None;
    for (token, replaced) in &recorded {
        assert_eq!(*replaced, before, "what {token} replaced, of {recorded:?}");
        before = Some(*token);
    }
    assert!(
        recorded.len() > 5,
        "the mark was raised often: {recorded:?}"
    );
    assert!(!resource.has_next(), "nothing stays beside it");
}

/// A caller stands still in the middle of a change. Meanwhile the guard lets no higher token through, and
/// answers as ever what the mark decides by itself.
#[test]
fn a_checker_that_stands_still_lets_nobody_by_and_keeps_nobody_out() {
    let resource = Resource::with("7\n");
    let next = fs::File::create(resource.scene.path("mark.next")).expect("the new mark");
    rustix::fs::flock(&next, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    let _ = resource.ask("6").expect(80, "smaller");
    let _ = resource.ask("7").expect(0, "the same");
    let said = resource
        .ask("8")
        .expect(12, "it is not known what the other one writes");
    assert!(said.stderr().contains("in the middle"), "{}", said.said());
    assert_eq!(resource.mark().as_deref(), Some("7\n"));
    drop(next);
    let _ = resource.ask("8").expect(0, "it has gone");
    assert!(!resource.has_next(), "its file was used");
}

/// The calls of a check from the opening of the guard's folder on: name, and how often that name
/// was called up to there.
fn calls(resource: &Resource, token: &str) -> Vec<(String, usize)> {
    let trace = resource.scene.path("trace");
    let mut strace = resource.scene.program("strace");
    strace.args(["-qq", "-e", "signal=none", "-o", word(&trace)]);
    strace.args([crate::support::TENURE, "fence", "check", token]);
    strace.args(["--guard", word(&resource.mark)]);
    let _ = answer(&mut strace).expect(0, "traced");
    let folder = format!("\"{}\", O_RDONLY", word(resource.scene.root()));
    let mut counts = BTreeMap::new();
    let mut points = Vec::new();
    for line in fs::read_to_string(trace).expect("a trace").lines() {
        let Some((call, _)) = line.split_once('(') else {
            continue;
        };
        let nth: &mut usize = counts.entry(call.to_owned()).or_default();
        *nth += 1;
        if line.contains(&folder) || !points.is_empty() {
            points.push((call.to_owned(), *nth));
        }
    }
    points
}

#[test]
fn a_checker_killed_at_any_call_leaves_the_old_mark_or_the_new_one() {
    for before in [None, Some("7\n")] {
        let new = || before.map_or_else(Resource::new, Resource::with);
        let points = calls(&new(), "9");
        let names: Vec<_> = points.iter().map(|(call, _)| call.as_str()).collect();
        for needed in ["flock", "ftruncate", "pwrite64", "fsync"] {
            assert!(names.contains(&needed), "{needed} is one of {names:?}");
        }
        let mut seen = BTreeMap::new();
        for (call, nth) in &points {
            let resource = new();
            let mut strace = resource.scene.program("strace");
            strace.args(["-qq", "-e", "signal=none", "-o", "/dev/null"]);
            strace.arg(format!("--trace={call}"));
            strace.arg(format!("--inject={call}:signal=KILL:when={nth}"));
            strace.args([crate::support::TENURE, "fence", "check", "9"]);
            strace.args(["--guard", word(&resource.mark)]);
            let _ = answer(&mut strace);
            let at = format!("killed at {call} {nth}");
            let left = resource.mark();
            assert!(
                left.as_deref() == before || left.as_deref() == Some("9\n"),
                "{at}: {left:?}"
            );
            *seen.entry(left).or_insert(0) += 1;
            if before.is_some() {
                let _ = resource.ask("6").expect(80, &at);
            }
            let _ = resource.ask("9").expect(0, &at);
            let _ = resource.ask("8").expect(80, &at);
            assert_eq!(resource.mark().as_deref(), Some("9\n"), "{at}");
            // What was not needed for 9 is used for the next.
            let _ = resource.ask("10").expect(0, &at);
            assert!(!resource.has_next(), "{at}: nothing stays beside it");
        }
        assert_eq!(
            seen.len(),
            2,
            "killed before the change and after it: {seen:?}"
        );
    }
}

/// A holder that stood still for longer than its lease, and whose work goes on before its
/// supervisor can end it: the lock says that it is over, and the guard refuses its write.
#[test]
fn the_late_write_of_a_holder_that_slept_through_its_lease_is_refused() {
    let resource = Resource::new();
    let scene = &resource.scene;
    let write = scene.script(
        "write",
        "#!/bin/sh\ntenure fence check --guard \"$1/mark\" 2>>\"$1/said\" || exit\n\
         echo \"$2\" >\"$1/data\"\n",
    );
    let root = word(scene.root());
    let write = format!("'{}' '{root}'", write.display());
    let work = format!(
        "{write} old-1; echo $$ >'{root}/pid.new'; mv '{root}/pid.new' '{root}/pid'
         while [ ! -e '{root}/go' ]; do sleep 0.01; done
         tenure --profile session fence check 2>>'{root}/said'; echo $? >'{root}/lock'
         {write} old-2; echo $? >'{root}/guard.new'; mv '{root}/guard.new' '{root}/guard'
         while [ -d '{root}' ]; do sleep 0.01; done"
    );
    let run = |work: &str| {
        let mut command = scene.tenure(["run", "7", "-q", "--profile", "session"]);
        command.args(["--stale-after", "2s", "--", "sh", "-c", work]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let data = || fs::read_to_string(scene.path("data")).unwrap_or_default();
    let old = Started::new(&mut run(&work));
    let command = crate::support::read_number(&scene.path("pid"));
    assert_eq!(data(), "old-1\n");
    let group = group_of(Pid::from_raw(command.try_into().unwrap()).unwrap()).unwrap();
    old.signal(Signal::STOP);
    kill_process_group(group, Signal::STOP).unwrap();
    for pid in [old.pid(), command] {
        eventually("all of them to stand still", || {
            matches!(state(pid), Some('T' | 'D'))
        });
    }
    let look = [
        "check",
        "7",
        "--profile",
        "session",
        "--stale-after",
        "2s",
        "--output",
        "json",
    ];
    eventually("the lease to run out", || {
        scene.run(look).json()["data"]["standing"] == "stale"
    });
    let _ = answer(&mut run(&format!("{write} new"))).expect(0, "it takes over");
    assert_eq!(data(), "new\n");

    fs::write(scene.path("go"), "").expect("a word");
    kill_process_group(group, Signal::CONT).unwrap();
    let code = |file: &str| read_lines(&scene.path(file));
    let guard = code("guard");
    let said = fs::read_to_string(scene.path("said")).expect("messages");
    assert_eq!(code("lock"), "80\n", "{said}");
    assert_eq!(guard, "80\n", "{said}");
    assert_eq!(data(), "new\n", "the newer write stays: {said}");
    assert!(said.contains("is too old"), "{said}");
    send(old.pid(), Signal::CONT);
    let _ = old.finish().expect(80, "its supervisor sees it too");
}

/// `examples/fencing`, whose output docs/fencing.md shows.
#[test]
fn the_example_loses_a_deposit_without_a_fence_and_none_with_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scene = Scene::new();
    let mut demo = scene.program(word(&root.join("examples/fencing/demo")));
    let said = answer(&mut demo).expect(0, "the example").stdout();
    let page = fs::read_to_string(root.join("docs/fencing.md")).expect("the page");
    let shown = page.split("```console\n$ examples/fencing/demo\n").nth(1);
    let shown = shown
        .and_then(|rest| rest.split("```").next())
        .expect("what it prints");
    // Tokens differ from day to day.
    let without_numbers = |text: &str| {
        let words = text.split_inclusive(char::is_whitespace);
        let is_token = |word: &&str| fence_token(word).is_some_and(|token| token > 1 << 40);
        words.filter(|word| !is_token(word)).collect::<String>()
    };
    assert_eq!(without_numbers(&said), without_numbers(shown), "{said}");
    assert!(
        said.contains("100 + 10 + 50 = 110"),
        "a lost deposit: {said}"
    );
    assert!(said.ends_with("100 + 10 + 50 = 160\n"), "none lost: {said}");
}

fn fence_token(word: &str) -> Option<u64> {
    tenure_engine::fence::token(word.trim_end().trim_end_matches(','))
}
