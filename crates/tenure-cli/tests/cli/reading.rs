//! `check`, `list` and `clean`: they say how things are, create nothing, and need no rights that
//! looking does not need.

use crate::support::{Answer, Scene, Started, answer, is_root};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Every file below a folder with its content and time of change.
fn inventory(folder: &Path) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|item| {
            let item = item.unwrap();
            let changed = item.metadata().unwrap().modified().unwrap();
            let name = item.file_name().to_string_lossy().into_owned();
            (name, fs::read(item.path()).unwrap_or_default(), changed)
        })
        .collect();
    found.sort();
    found
}

/// The program as another user, which may look and not write.
fn as_nobody(scene: &Scene, words: &[&str]) -> Answer {
    // The program itself may lie where no other user can go.
    let copy = scene.path("tenure-copy");
    if !copy.exists() {
        fs::copy(crate::support::TENURE, &copy).unwrap();
    }
    for (path, mode) in [(scene.root(), 0o755), (copy.as_path(), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = scene.program("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(copy)
        .args(words)
        .current_dir("/");
    answer(&mut command)
}

#[test]
fn looking_at_what_nobody_uses_creates_nothing() {
    let scene = Scene::new();
    let before = inventory(scene.root());
    for words in [
        &["check", "x"][..],
        &["check"],
        &["list"],
        &["wait", "x"],
        &["clean"],
        &["clean", "--dry-run"],
        &["audit"],
        &["audit", "x"],
        &["timeline"],
        &["timeline", "x", "--output", "html"],
        &["release", "x"],
    ] {
        let _ = scene.run(words).expect(0, &format!("{words:?}"));
    }
    let _ = scene.run(["heartbeat", "x"]).expect(80, "nothing to renew");
    assert_eq!(inventory(scene.root()), before, "not even the folder");
}

#[test]
fn looking_at_a_held_lock_changes_nothing() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    // The supervisor records the command after it has begun, and not because of a look.
    scene.until_named("x");
    let before = inventory(&scene.locks());
    for words in [
        &["check", "x"][..],
        &["check"],
        &["list"],
        &["wait", "x", "-n"],
        &["clean", "--dry-run"],
        &["check", "x", "--output", "yaml"],
    ] {
        let _ = scene.run(words);
    }
    assert_eq!(inventory(&scene.locks()), before, "the record is as it was");
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn check_answers_by_its_code() {
    let scene = Scene::new();
    let answer = scene
        .run(["check", "x"])
        .expect(0, "a name that is not in use is free");
    assert_eq!(
        answer.stdout(),
        "x is free: never used here, or cleaned up since\n"
    );
    let holder = scene.hold("x", ["--why", "moving the data"]);
    let answer = scene.run(["check", "x"]).expect(4, "held");
    for fact in [
        &format!("PID {}", holder.pid()),
        "tester@",
        "moving the data",
        "ago",
    ] {
        assert!(
            answer.stdout().contains(fact),
            "`{fact}`: {}",
            answer.said()
        );
    }
    let _ = scene.run(["check"]).expect(4, "one of all is held");
    let _ = scene.run(["check", "y"]).expect(0, "another one is not");
    let _ = holder.open().expect(0, "the holder");
    let _ = scene.run(["check"]).expect(0, "all of them are free");
    fs::write(scene.locks().join("bad.tenure"), "no record\n").unwrap();
    let answer = scene
        .run(["check", "bad"])
        .expect(4, "unreadable is not free");
    assert!(
        answer.stdout().contains("bad.tenure"),
        "the file is named: {}",
        answer.said()
    );
}

#[test]
fn check_knows_its_own_by_the_request_id() {
    let scene = Scene::new();
    let words = ["acquire", "x", "--owner", "none", "--request-id", "r"];
    let _ = scene.run(words).expect(0, "acquired");
    let _ = scene.run(["check", "x"]).expect(4, "held");
    let _ = scene
        .run(["check", "x", "--request-id", "other"])
        .expect(4, "another owner's");
    let answer = scene
        .run(["check", "x", "--request-id", "r"])
        .expect(0, "mine");
    assert!(answer.stdout().contains("held by you"), "{}", answer.said());
}

#[test]
fn a_lock_that_a_dead_holder_left_is_free_and_says_who_it_was() {
    let scene = Scene::new();
    let owner = Started::new(scene.program("sleep").arg("600"));
    let pid = owner.pid().to_string();
    let _ = scene
        .run(["acquire", "x", "--owner", &pid])
        .expect(0, "acquired");
    drop(owner);
    let answer = scene
        .run(["check", "x"])
        .expect(0, "free for the next caller");
    assert!(
        answer.stdout().contains("free") && answer.stdout().contains(&pid),
        "{}",
        answer.said()
    );
    let list = scene.run(["list"]).expect(0, "a list").stdout();
    let row = list.lines().nth(1).expect("its line");
    let columns: Vec<_> = row.split_whitespace().collect();
    assert_eq!(columns[..3], ["x", "free", "-"], "as check has it: {list}");
    assert!(
        row.contains(&format!("PID {pid} ")) && row.contains("ended without releasing it"),
        "and whose it was: {list}"
    );
    assert_eq!(scene.standing("x"), "stale", "programs see the difference");
    let answer = scene
        .run(["run", "-n", "x", "--", "true"])
        .expect(0, "taken over");
    assert!(
        answer
            .stderr()
            .contains(&format!("its last holder, PID {pid}, had ended")),
        "the next one is told: {}",
        answer.said()
    );
}

#[test]
fn list_shows_every_lock_in_columns() {
    let scene = Scene::new();
    assert_eq!(scene.run(["list"]).stdout(), "no locks\n");
    let _ = scene
        .run(["run", "free-one", "--", "true"])
        .expect(0, "a lock that was used");
    let holder = scene.hold("held-one", ["--why", "moving the data"]);
    let words = ["acquire", "detached-one", "--owner", "none", "--ttl", "2h"];
    let _ = scene.run(words).expect(0, "a detached hold");
    let text = scene.run(["list", "--all"]).expect(0, "a list").stdout();
    let lines: Vec<_> = text.lines().collect();
    let names: Vec<_> = lines
        .iter()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(
        names,
        ["NAME", "detached-one", "free-one", "held-one"],
        "sorted: {text}"
    );
    let standing = lines[0].find("STANDING").unwrap();
    for line in &lines[1..] {
        assert_ne!(
            line.as_bytes()[standing],
            b' ',
            "the columns are in line: {text}"
        );
        assert_eq!(
            line.as_bytes()[standing - 1],
            b' ',
            "the columns are in line: {text}"
        );
    }
    assert!(lines[1].contains("2h"), "the ttl: {text}");
    assert!(lines[3].contains("moving the data"), "why: {text}");
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn list_counts_as_people_do_is_as_wide_as_columns_says_and_shows_who_is_waited_for() {
    let scene = Scene::new();
    for name in ["svc-10", "svc-2"] {
        let words = [
            "acquire",
            name,
            "--owner",
            "none",
            "--why",
            &"long ".repeat(40),
        ];
        let _ = scene.run(words).expect(0, "a detached hold");
    }
    let names = |text: &str| -> Vec<String> {
        let names = text.lines().skip(1).filter(|line| !line.starts_with(' '));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect()
    };
    let text = scene.run(["list"]).expect(0, "a list").stdout();
    assert_eq!(names(&text), ["svc-2", "svc-10"], "{text}");
    assert!(
        text.lines().any(|line| line.len() > 100),
        "all of it: {text}"
    );
    let mut narrow = scene.tenure(["list"]);
    let text = answer(narrow.env("COLUMNS", "60")).expect(0, "a list");
    let text = text.stdout();
    assert!(
        text.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
    assert_eq!(names(&text), ["svc-2", "svc-10"], "{text}");
    for (flags, nothing) in [
        (&["--waiting"][..], "nobody waits for a lock\n"),
        (
            &["--as", "claude/none"],
            "this agent holds no lock, and waits for none\n",
        ),
        (
            &["--waiting", "--as", "claude/none"],
            "nobody waits for a lock of this agent\n",
        ),
    ] {
        let text = scene.run(["list"].iter().chain(flags)).stdout();
        assert_eq!(text, nothing, "{flags:?}");
    }
    // By queue, the longest comes first; among locks with none, the order of the names stays.
    let mut waiter =
        Started::new(&mut scene.tenure(["run", "svc-10", "-w", "forever", "--", "true"]));
    scene.until_queued("svc-10", 1);
    for (order, expected) in [
        ("name", ["svc-2", "svc-10"]),
        ("queue", ["svc-10", "svc-2"]),
    ] {
        let text = scene.run(["list", "--sort", order]).stdout();
        assert_eq!(names(&text), expected, "{text}");
        let document = scene
            .run(["list", "--sort", order, "--output", "json"])
            .json();
        let locks = document["data"]["locks"].as_array().expect("locks");
        let names: Vec<_> = locks
            .iter()
            .filter_map(|lock| lock["name"].as_str())
            .collect();
        assert_eq!(names, expected, "{document}");
    }
    let text = scene.run(["list", "--waiting"]).stdout();
    assert_eq!(names(&text), ["svc-10"], "{text}");
    let _ = scene
        .run(["list", "--sort", "age"])
        .expect(2, "an order that there is not");
    waiter.signal(Signal::TERM);
    let _ = waiter.end();
}

/// `check` asks whether a lock is free, `check --held` whether it is held; no error is a yes to either.
#[test]
fn check_says_whether_a_living_holder_has_it_and_whether_it_was_ever_used() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let _ = scene.run(["run", "used", "--", "true"]).expect(0, "a use");
    let _ = scene.run(["check", "x", "--held"]).expect(0, "it lives");
    for name in ["used", "never"] {
        let answer = scene.run(["check", "--held", name]).expect(4, "nobody");
        let said = format!("{name} has no living holder: {name} is free\n");
        assert_eq!(answer.stdout(), said);
    }
    let _ = scene.run(["check", "--held"]).expect(2, "no lock is named");
    let both = ["check", "--held", "x", "--shared"];
    let _ = scene.run(both).expect(2, "two questions");
    fs::write(scene.path("locks/broken.tenure"), "x").expect("what is no list");
    let _ = scene.run(["check", "--held", "broken"]).expect(4, "no yes");

    let used = scene.run(["check", "used"]).expect(0, "free");
    assert_eq!(used.stdout(), "used is free\n");
    let never = scene.run(["check", "never"]).expect(0, "free");
    let said = "never is free: never used here, or cleaned up since\n";
    assert_eq!(never.stdout(), said);
    let json = |name: &str| scene.run(["check", name, "--output", "json"]).stdout();
    assert!(json("never").contains("\"never_used\":true"));
    assert!(!json("used").contains("never_used"));
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn free_locks_do_not_pile_up_before_people_and_programs_get_all() {
    let scene = Scene::new();
    for number in 1..=3 {
        let name = format!("used-{number}");
        let _ = scene.run(["run", &name, "--", "true"]).expect(0, "a hold");
    }
    let none = scene.run(["list"]).expect(0, "a list").stdout();
    assert_eq!(
        none,
        "no lock is held\n3 free locks are not shown; `tenure list --all` shows all\n"
    );
    assert_eq!(scene.run(["list", "-q"]).stdout(), "no lock is held\n");
    let holder = scene.hold("held-one", ["-q"]);
    for words in [&["list"][..], &["check"]] {
        let text = scene.run(words).stdout();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "a header, the lock and the count: {text}");
        assert!(lines[1].starts_with("held-one "), "{text}");
        assert!(
            lines[2].starts_with("3 free locks are not shown; "),
            "{text}"
        );
        let text = scene.run([words[0], "-q"]).stdout();
        assert!(!text.contains("free"), "{text}");
    }
    let all = scene.run(["list", "--all"]).expect(0, "all").stdout();
    assert_eq!(all.lines().count(), 5, "{all}");
    assert!(!all.contains("not shown"), "{all}");
    for words in [&["list"][..], &["list", "--all"]] {
        let mut command = scene.tenure(words);
        let answer = answer(command.args(["--output", "json"])).json();
        let locks = answer["data"]["locks"].as_array().expect("locks");
        assert_eq!(locks.len(), 4, "a program chooses by itself: {answer}");
    }
    let _ = holder.open().expect(0, "the holder");
}

/// The header stands at the left edge like every other line, and on the same stream.
#[test]
fn check_of_all_locks_shows_the_same_table_whatever_its_code() {
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    let answer = scene.run(["check"]).expect(4, "one is held");
    assert_eq!(
        answer.stderr(),
        "",
        "an answer, whatever it is, goes to stdout"
    );
    let said = answer.stdout();
    let header = said
        .lines()
        .find(|line| line.contains("STANDING"))
        .expect("a header");
    assert!(
        header.starts_with("NAME"),
        "the columns are in line: {said}"
    );
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn a_broken_lock_does_not_hide_the_others() {
    let scene = Scene::new();
    let _ = scene.run(["run", "good", "--", "true"]).expect(0, "a lock");
    fs::write(scene.locks().join("torn.tenure"), "no record\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", scene.locks().join("planted.tenure")).unwrap();
    fs::create_dir(scene.locks().join("folder.tenure")).unwrap();
    for name in [
        "not a name.tenure",
        "README",
        ".hidden.tenure",
        "good.tenure.bak",
    ] {
        fs::write(scene.locks().join(name), "").unwrap();
    }
    let answer = scene.run(["list", "--all"]);
    let text = answer.stdout();
    assert!(
        text.contains("good"),
        "the good one is listed: {}",
        answer.said()
    );
    assert!(text.contains("torn"), "the torn one too: {}", answer.said());
    assert!(
        !text.contains("hidden") && !text.contains("README"),
        "strangers are not: {text}"
    );
    assert!(
        !text.contains("root:"),
        "and a planted link is not followed: {text}"
    );
}

#[test]
fn clean_says_what_it_would_remove_and_then_removes_it() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "unused", "--", "true"])
        .expect(0, "a lock that was used");
    let token = |scene: &Scene| -> u64 {
        let answer = scene.run(["run", "unused", "--", "sh", "-c", "echo $TENURE_TOKEN"]);
        answer.stdout().trim().parse().expect("a token")
    };
    let before = token(&scene);
    let words = ["acquire", "silent", "--owner", "none", "--ttl", "1ms"];
    let _ = scene.run(words).expect(0, "a hold that runs out");
    let holder = scene.hold("busy", ["-q"]);
    crate::support::eventually("the hold to run out", || {
        scene.standing("silent") == "stale"
    });
    let files = inventory(&scene.locks());
    let dry = scene.run(["clean", "--dry-run"]).expect(0, "a dry run");
    assert_eq!(
        inventory(&scene.locks()),
        files,
        "a dry run removes nothing"
    );
    let wet = scene.run(["clean"]).expect(0, "a real one");
    assert_eq!(
        dry.stdout().replace("would remove", "removed"),
        wet.stdout(),
        "it was announced as it came"
    );
    let names: Vec<_> = inventory(&scene.locks())
        .into_iter()
        .map(|file| file.0)
        .collect();
    assert!(
        names.contains(&"busy.tenure".to_owned()),
        "what is held stays: {names:?}"
    );
    for gone in ["unused.tenure", "silent.tenure"] {
        assert!(
            !names.contains(&gone.to_owned()),
            "{gone} is gone: {names:?}"
        );
    }
    assert!(token(&scene) > before, "tokens go on rising");
    let _ = holder.open().expect(0, "the holder was not disturbed");
}

#[test]
fn looking_needs_no_right_to_write() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "free", "--", "true"])
        .expect(0, "a lock that was used");
    let holder = scene.hold("held", ["-q"]);
    let file = |name: &str| scene.locks().join(format!("{name}.tenure"));
    for (path, mode) in [
        (file("free"), 0o444),
        (file("held"), 0o444),
        (scene.locks(), 0o555),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let look = |words: &[&str]| {
        if is_root() {
            as_nobody(&scene, words)
        } else {
            scene.run(words)
        }
    };
    let _ = look(&["check", "free"]).expect(0, "free");
    let _ = look(&["check", "held"]).expect(4, "held, and a stranger sees by whom");
    let list = look(&["list"]).expect(0, "a list");
    assert!(
        list.stdout().contains(&holder.pid().to_string()),
        "{}",
        list.said()
    );
    let _ = look(&["wait", "held", "-w", "100ms"]).expect(4, "held");
    let waits = look(&["wait", "free"]).expect(0, "free");
    assert_eq!(waits.stdout(), "free is free\n");
    // A folder that cannot be written to is no folder to take a lock in.
    let _ = look(&["run", "new", "--", "echo", "ran"]).expect(7, "no right to write");
    fs::set_permissions(scene.locks(), fs::Permissions::from_mode(0o755)).unwrap();
    let _ = holder.open().expect(0, "the holder");
}

#[test]
fn what_may_not_be_read_is_an_error_and_not_free() {
    if !is_root() {
        // Any other user is the owner of what the test makes.
        return;
    }
    let scene = Scene::new();
    let holder = scene.hold("x", ["-q"]);
    fs::set_permissions(scene.locks(), fs::Permissions::from_mode(0o755)).unwrap();
    for words in [
        &["check", "x"][..],
        &["wait", "x", "-n"],
        &["run", "-n", "x", "--", "true"],
    ] {
        let answer = as_nobody(&scene, words).expect(7, &format!("{words:?}"));
        assert_eq!(answer.stdout(), "", "nothing is promised");
    }
    let answer = as_nobody(&scene, &["clean", "--output", "json"]);
    assert_ne!(
        answer.status().code(),
        Some(0),
        "a clean that could not look is no success: {}",
        answer.said()
    );
    fs::set_permissions(scene.locks(), fs::Permissions::from_mode(0o700)).unwrap();
    let _ = as_nobody(&scene, &["check", "x"]).expect(7, "a folder that is closed to us");
    let _ = as_nobody(&scene, &["list"]).expect(7, "a folder that is closed to us");
    let _ = holder.open().expect(0, "the holder");
}

/// Text from another program's record is shown, and does nothing to the terminal.
#[test]
fn hostile_text_in_a_record_is_cleaned() {
    let scene = Scene::new();
    let nasty = "\u{1b}[31mred\u{1b}]0;title\u{7}\nfree: nothing is held\r\u{8}\u{9b}2J\ttab";
    let mut command = scene.tenure(["acquire", "x", "--owner", "none", "--why", nasty]);
    let answer = answer(command.env("USER", nasty)).expect(0, "acquired");
    let texts = [
        answer.stdout(),
        scene.run(["check", "x"]).stdout(),
        scene.run(["list"]).stdout(),
        scene.run(["run", "-n", "x", "--", "true"]).stderr(),
        scene
            .run(["run", "-w", "100ms", "x", "--", "true"])
            .stderr(),
        scene.run(["wait", "-w", "100ms", "x"]).stderr(),
        scene.run(["release", "x"]).stderr(),
        scene.run(["heartbeat", "x"]).stderr(),
    ];
    for text in &texts {
        let bad: Vec<_> = text
            .chars()
            .filter(|c| c.is_control() && *c != '\n')
            .collect();
        assert_eq!(bad, [], "no control character is left in: {text:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("free:")),
            "and no line that the record made up: {text}"
        );
    }
    for words in [
        ["check", "x", "--output", "json"],
        ["list", "--output", "json", "-q"],
    ] {
        let text = scene.run(words).stdout();
        assert!(
            !text.contains('\u{1b}'),
            "documents carry it as text: {text}"
        );
    }
}

/// A right-to-left override makes a terminal show other words than are there.
#[test]
fn text_that_would_be_shown_in_another_order_is_cleaned() {
    let scene = Scene::new();
    let nasty = "a\u{202e}b\u{2066}c\u{200e}d\u{2028}e";
    let words = ["acquire", "x", "--owner", "none", "--why", nasty];
    let _ = scene.run(words).expect(0, "acquired");
    let shown = scene.run(["check", "x"]).stdout() + &scene.run(["list"]).stdout();
    for bad in ['\u{202e}', '\u{2066}', '\u{2028}'] {
        assert!(!shown.contains(bad), "{bad:?} is not shown: {shown:?}");
    }
}

/// A program that prints a field of a document raw, or a person who looks at one, gets no more than
/// letters either. To a parser it is what was written.
#[test]
fn documents_carry_whatever_acts_on_a_terminal_as_escapes() {
    let scene = Scene::new();
    let nasty = "a\u{9b}2Jb\u{7f}\u{85}c\u{202e}d\u{2066}e\u{200e}f\u{2028}g\u{2029}h\u{feff}i\
                 \u{200b}j\u{61c}k\u{e0041}l🔒";
    let mut command = scene.tenure(["acquire", "x", "--owner", "none", "--why", nasty]);
    let _ = answer(command.env("USER", nasty)).expect(0, "acquired");
    let is_raw = |c: char| {
        (c.is_control() && c != '\n') || (nasty.contains(c) && !c.is_ascii() && c != '🔒')
    };
    for words in [
        &["check", "x"][..],
        &["list"],
        &["run", "x", "-n", "--", "true"],
        &["acquire", "x", "-n", "--owner", "none", "--why", nasty],
        &["audit"],
    ] {
        for format in ["json", "yaml"] {
            let words = [&words[..1], &["--output", format], &words[1..]].concat();
            let said = scene.run(&words);
            let text = said.stdout();
            assert!(!text.contains(is_raw), "{words:?}: {text:?}");
            if words[0] != "audit" {
                let read: Value = if format == "json" {
                    serde_json::from_str(&text).unwrap()
                } else {
                    serde_saphyr::from_str(&text).unwrap()
                };
                assert!(is_in(&read, nasty), "{words:?}: as it was written: {text}");
            }
        }
    }
}

/// Whether a document has this text somewhere.
fn is_in(document: &Value, text: &str) -> bool {
    match document {
        Value::String(found) => found.contains(text),
        Value::Array(items) => items.iter().any(|item| is_in(item, text)),
        Value::Object(map) => map.values().any(|value| is_in(value, text)),
        _ => false,
    }
}

#[test]
fn long_reasons_are_cut() {
    let scene = Scene::new();
    let long = "word ".repeat(10_000);
    let words = ["acquire", "x", "--owner", "none", "--why", &long];
    let _ = scene.run(words).expect(0, "acquired");
    let said = scene.run(["check", "x"]).stdout();
    assert!(said.len() < 1_000, "{} bytes", said.len());
    assert!(said.contains('…'), "and it shows: {said}");
}

#[test]
fn people_without_a_name_are_named_by_their_user() {
    let scene = Scene::new();
    let mut command: Command = scene.tenure(["acquire", "x", "--owner", "none"]);
    let command = command.env_remove("USER").env_remove("LOGNAME");
    let _ = answer(command).expect(0, "acquired");
    // The hold may outlast the account, and the number may be another user's by then.
    let name = answer(scene.program("id").arg("-un"));
    let list = fs::read(scene.path("locks/x.tenure")).expect("a list");
    let list = String::from_utf8_lossy(&list).into_owned();
    let named = format!("\"actor\":\"{}\"", name.stdout().trim());
    assert!(name.code() != 0 || list.contains(&named), "{list}");
    let actor = scene.check("x")["holder"]["actor"].clone();
    assert!(
        actor.as_str().is_some_and(|actor| !actor.is_empty()),
        "{actor}"
    );
}

/// The hint is talk, so it is on stderr and among the warnings, and changes neither answer nor code.
#[test]
fn a_name_that_is_a_slip_away_from_a_lock_in_use_is_pointed_out() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "idle", "--", "true"])
        .expect(0, "used, and free");
    let _ = scene
        .run(["run", "deploys", "--", "true"])
        .expect(0, "used, and free");
    let first = scene.hold("deploy", ["-q"]);
    let second = scene.hold("build1", ["-q"]);
    for slip in ["deplyo", "deploi", "deplo", "ddeploy"] {
        for verb in ["check", "wait"] {
            let said = scene.run([verb, slip]).expect(0, "it has no holder");
            assert!(
                said.stderr()
                    .contains(&format!("{slip} was never used; deploy, which is in use")),
                "{verb} {slip}: {}",
                said.said()
            );
            assert!(said.stdout().contains("free"), "{}", said.said());
            let said = scene
                .run([verb, slip, "--output", "json"])
                .expect(0, "free");
            let document: Value = serde_json::from_str(&said.stdout()).unwrap();
            let warning = document["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.contains("deploy, which is in use"), "{document}");
            assert_eq!(document["ok"], true, "{document}");
            let said = scene.run([verb, "-q", slip]).expect(0, "free");
            assert_eq!(said.stderr(), "", "quiet is quiet");
        }
    }
    for other in [
        // Numbers are no slips, and neither is what has been used, what is held, or what is far away.
        "build2", "build", "build11", "deploys", "deploy2", "idel", "destroy", "x",
    ] {
        let said = scene.run(["check", other]);
        assert_eq!(said.stderr(), "", "{other}: {}", said.said());
    }
    let said = scene.run(["check", "deploy"]).expect(4, "held");
    assert!(!said.said().contains("was never used"), "{}", said.said());
    let _ = first.open().expect(0, "the holder");
    let _ = second.open().expect(0, "the holder");
    let said = scene.run(["check", "deploi"]).expect(0, "free");
    assert_eq!(said.stderr(), "", "the other one is not in use any more");
}

/// Only tenure writes its own lists, and a page counts by its checksum: one that does not fit is a write that a power cut tore. A
/// file that does not begin as ours do is unreadable and never free; what stands behind a page changes nothing.
#[test]
fn native_list_in_another_spelling_is_not_free_table() {
    let scene = Scene::new();
    let held = ["acquire", "x", "--owner", "none", "--request-id", "r"];
    let _ = scene.run(held).expect(0, "free");
    let file = scene.locks().join("x.tenure");
    let whole = fs::read(&file).expect("a list");
    let capitals = [b"TENURE".as_slice(), &whole[6..]].concat();
    for (what, bytes, standing) in [
        (
            "a byte order mark",
            ["\u{feff}".as_bytes(), &whole].concat(),
            "unreadable",
        ),
        ("capitals", capitals, "unreadable"),
        (
            "a comment",
            [b"# x\n".as_slice(), &whole].concat(),
            "unreadable",
        ),
        ("bytes behind it", [&whole[..], b"x"].concat(), "held"),
        ("nothing else", whole.clone(), "held"),
    ] {
        fs::write(&file, bytes).expect("another spelling");
        let check = scene.run(["check", "x", "--output", "json"]);
        let check = check.expect(4, what).json();
        assert_eq!(check["error"]["context"]["standing"], standing, "{what}");
        let _ = scene
            .run(["acquire", "x", "-n", "--owner", "none"])
            .expect(4, what);
    }
}
