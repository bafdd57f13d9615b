//! `audit`: what happened is shown, to people and to programs, once and to the end. The log is
//! written through the library, as the other verbs write it.

#![allow(
    clippy::disallowed_methods,
    reason = "a test takes away what others look for"
)]

use crate::support::{Answer, Scene, Started, answer, eventually, state};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tenure_core::{LockName, RequestId, StaleReason, Takeover};
use tenure_engine::audit::{AuditLog, Ending, Layout, Occasion, Record, Releaser, error_text};
use tenure_os::clock::{Clock, SystemClock};

/// 2026-02-07T10:00:00Z.
const TEN: u64 = 1_770_458_400_000;

fn audit_dir(scene: &Scene) -> PathBuf {
    scene.locks().join("audit")
}

fn log(scene: &Scene, layout: Layout) -> AuditLog {
    AuditLog::new(audit_dir(scene), layout)
}

fn record(lock: &str, id: &str, at_ms: u64, make: impl FnOnce(Occasion<'_>) -> Record) -> Record {
    let (lock, id) = (LockName::new(lock).unwrap(), RequestId::new(id).unwrap());
    make(Occasion::new(&lock, &id, at_ms))
}

fn acquired(lock: &str, id: &str, at_ms: u64, token: u64) -> Record {
    record(lock, id, at_ms, |occasion| {
        let ttl = Duration::from_secs(900);
        Record::lock_acquired(occasion, Path::new("/l/x.lock"), ttl, token)
    })
}

fn released(lock: &str, id: &str, at_ms: u64) -> Record {
    record(lock, id, at_ms, |occasion| {
        Record::lock_released(
            occasion,
            Duration::from_secs(5),
            Ending::Success,
            Releaser::Owner,
        )
    })
}

fn now_ms() -> u64 {
    SystemClock::new(None).now().wall_us / 1_000
}

/// Every event once, in both layouts.
fn fill(scene: &Scene) {
    let (one, many) = (log(scene, Layout::OneFile), log(scene, Layout::PerRequest));
    one.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    many.append(&acquired("other", "req_2", TEN + 1_000, 2))
        .unwrap();
    one.append(&released("deploy", "req_1", TEN + 2_000))
        .unwrap();
    let stolen = record("other", "req_3", TEN + 3_000, |occasion| {
        let why = Takeover::Stale(StaleReason::Silent);
        Record::of_steal(occasion, why, None, b"{", true)
    });
    many.append(&stolen).unwrap();
    let error = error_text(&std::io::Error::from_raw_os_error(13));
    let failed = record("other", "req_3", TEN + 4_000, |occasion| {
        Record::lock_release_failed(occasion, Path::new("/l/x.lock"), &error)
    });
    many.append(&failed).unwrap();
    let failed = record("other", "req_3", TEN + 5_000, |occasion| {
        Record::heartbeat_failed(occasion, 3, &error)
    });
    many.append(&failed).unwrap();
}

fn events(answer: &Answer) -> Vec<Value> {
    let document = answer.json();
    assert_eq!(document["ok"], true);
    document["data"]["events"].as_array().unwrap().clone()
}

#[test]
fn every_event_is_one_row_for_people_in_the_order_and_the_zone_of_the_viewer() {
    let scene = Scene::new();
    fill(&scene);
    for (zone, hour) in [("UTC", "10"), ("Asia/Tokyo", "19")] {
        let mut audit = scene.tenure(["audit"]);
        let answer = answer(audit.env("TZ", zone)).expect(0, "all of it");
        let shown = answer.stdout();
        let rows: Vec<&str> = shown.lines().collect();
        assert!(rows[0].starts_with(&format!("TIME ({zone})")), "{shown}");
        for (row, (event, what)) in rows.iter().skip(1).zip([
            ("acquired", "token 1, ttl 900s  req_1"),
            ("acquired", "token 2, ttl 900s  req_2"),
            ("released", "success  req_1"),
            (
                "stolen",
                "stale_lock_forced from an unreadable record  req_3",
            ),
            (
                "release failed",
                "/l/x.lock: EACCES: permission denied (manual_cleanup_required)  req_3",
            ),
            (
                "heartbeat failed",
                "3 in a row: EACCES: permission denied  req_3",
            ),
        ]) {
            assert!(row.starts_with(&format!("2026-02-07 {hour}:00:0")), "{row}");
            assert!(
                row.contains(&format!("  {event}  ")) && row.ends_with(what),
                "{row}"
            );
        }
        assert_eq!((rows.len(), answer.stderr()), (7, String::new()), "{shown}");
    }
}

#[test]
fn programs_get_the_events_in_the_envelope() {
    let scene = Scene::new();
    fill(&scene);
    let answer = scene.run(["audit", "--output", "json"]).expect(0, "json");
    let events = events(&answer);
    assert_eq!(events.len(), 6);
    assert_eq!(events[0]["token"], 1);
    let file = fs::read_to_string(audit_dir(&scene).join("audit.jsonl")).unwrap();
    let first: Value = serde_json::from_str(file.lines().next().unwrap()).unwrap();
    assert_eq!(events[0], first, "as it stands in the file");
    let answer = scene.run(["audit", "--output", "yaml"]).expect(0, "yaml");
    assert!(answer.stdout().contains("lock_stolen"));
}

#[test]
fn a_filter_shows_what_it_names_and_nothing_else() {
    let scene = Scene::new();
    fill(&scene);
    for (words, count) in [
        (&["deploy"][..], 2),
        (&["nobody"], 0),
        (&["--event", "lock_acquired"], 2),
        (&["--event", "lock_acquired", "--event", "lock_stolen"], 3),
        (&["other", "--event=lock_acquired"], 1),
        (&["--request-id", "req_3"], 3),
        (&["--run-id", "req_3"], 3),
        (&["--since", "2026-02-07T10:00:02Z"], 4),
        (&["--until", "2026-02-07T11:00:02+01:00"], 3),
        (
            &[
                "--since",
                "2026-02-07T10:00:01Z",
                "--until",
                "2026-02-07T10:00:03Z",
            ],
            3,
        ),
        (&["--until", "2026-01-01T00:00:00Z"], 0),
    ] {
        let words = ["audit", "--output", "json"].iter().chain(words);
        let answer = scene.run(words.clone()).expect(0, "a filter");
        assert_eq!(events(&answer).len(), count, "{words:?}");
    }
    let log = log(&scene, Layout::PerRequest);
    let now = now_ms();
    for (id, minutes) in [("req_8", 60), ("req_9", 10)] {
        log.append(&acquired("ago", id, now - minutes * 60_000, 1))
            .unwrap();
    }
    let answer = scene.run(["audit", "ago", "--since", "15m", "--output", "json"]);
    let events = events(&answer.expect(0, "a duration"));
    assert_eq!(events.len(), 1, "a duration means ago");
    assert_eq!(events[0]["request_id"], "req_9");
}

#[test]
fn an_event_that_does_not_exist_is_answered_with_those_that_do() {
    let scene = Scene::new();
    let answer = scene
        .run(["audit", "--event", "lock_found"])
        .expect(2, "no such event");
    for event in [
        "lock_found",
        "one of acquired,",
        "refused",
        "heartbeat_failed",
    ] {
        assert!(answer.stderr().contains(event), "{}", answer.said());
    }
}

#[test]
fn no_audit_is_no_event_and_stays_so() {
    let scene = Scene::new();
    let answer = scene.run(["audit"]).expect(0, "nothing happened");
    assert_eq!(answer.stdout(), "no events\n");
    let answer = scene
        .run(["audit", "--output", "json"])
        .expect(0, "nothing");
    assert_eq!(events(&answer), [] as [Value; 0]);
    assert!(!scene.locks().exists(), "reading creates nothing");
}

/// The events of a call of `audit`, by their word and lock.
fn told(scene: &Scene, words: &[&str]) -> Vec<(String, String)> {
    let audit = [&["audit", "--output", "json"], words].concat();
    let events = events(&scene.run(audit).expect(0, "events"));
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let told = |event: &Value| (text(event, "event"), text(event, "lock_name"));
    events.iter().map(told).collect()
}

/// Who held it, who waited how long behind whom, who was refused, who asked whom to stop: of every kind of call, without
/// anything that was set up before.
#[test]
fn what_happened_to_a_lock_is_told_afterwards() {
    let scene = Scene::new();
    let held = scene.hold("job", ["--why", "deploy 7", "--actor", "ann"]);
    let waiter = Started::new(&mut scene.tenure(["run", "job", "--actor", "bob", "--", "true"]));
    scene.until_queued("job", 1);
    for _ in 0..3 {
        let refused = [
            "run", "job", "--queue", "none", "--actor", "cy", "--", "sh", "-c", "secret",
        ];
        let _ = scene.run(refused).expect(4, "held");
    }
    let _ = scene
        .run(["run", "job", "--skip", "--actor", "di", "--", "true"])
        .expect(0, "skipped");
    let _ = held.open().expect(0, "the command");
    let _ = waiter.finish().expect(0, "its turn");
    let all = events(&scene.run(["audit", "job", "--output", "json"]));
    let of = |event: &str, actor: &str| {
        let is_it = |it: &&Value| it["event"] == event && it["actor"] == actor;
        all.iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{event} of {actor}: {all:#?}"))
    };
    let (ann, bob) = (of("lock_acquired", "ann"), of("lock_acquired", "bob"));
    assert_eq!(ann["why"], "deploy 7");
    assert!(
        ann["waited_ms"].is_u64() && ann["behind"].is_null(),
        "{ann}"
    );
    assert!(bob["waited_ms"].as_u64() > Some(0), "{bob}");
    assert_eq!(bob["behind"]["actor"], "ann");
    assert_eq!(
        (&bob["command"], &bob["why"]),
        (&"true".into(), &Value::Null)
    );
    for event in [
        ann,
        bob,
        of("lock_released", "ann"),
        of("lock_refused", "cy"),
        of("lock_skipped", "di"),
    ] {
        assert!(
            event["pid"].is_u64() && event["host"].is_string(),
            "{event}"
        );
    }
    let refused = of("lock_refused", "cy");
    assert_eq!(
        (&refused["code"], &refused["held_by"]["actor"]),
        (&"LOCK_HELD".into(), &"ann".into())
    );
    let everything = Value::from(all.clone()).to_string();
    assert!(!everything.contains("secret"), "no arguments: {everything}");
    // People see repetitions counted.
    let text = scene
        .run(["audit", "job", "--event", "lock_refused"])
        .stdout();
    assert!(
        text.lines().count() == 2 && text.contains("3 times until"),
        "{text}"
    );
    let waited = scene
        .run(["audit", "--since", "yesterday", "--waited"])
        .stdout();
    let first = waited.lines().nth(1).unwrap_or_default().to_owned();
    assert!(
        first.contains("bob") && first.contains("behind ann"),
        "{waited}"
    );
    let held = scene.run(["audit", "--since", "today", "--held"]).stdout();
    assert!(
        held.lines().nth(1).is_some_and(|row| row.contains("ann")),
        "{held}"
    );
    // Each stream has a file of its own, under its own bound.
    for (file, count) in [("audit", 4), ("refusals", 4)] {
        let lines = fs::read_to_string(audit_dir(&scene).join(format!("{file}.jsonl"))).unwrap();
        assert_eq!(lines.lines().count(), count, "{file}: {lines}");
    }
}

/// Each way in which a caller ends up with a lock, without it, or without it any more.
#[test]
fn every_kind_of_call_leaves_its_lines_table() {
    let scene = Scene::new();
    let quick = ["--queue", "none"];
    let of = |lock: &str| {
        let told = told(&scene, &[lock]);
        told.into_iter().map(|(event, _)| event).collect::<Vec<_>>()
    };
    let _ = scene
        .run(["acquire", "kept", "--owner", "none", "--request-id", "r"])
        .expect(0, "free");
    let _ = scene
        .run(["acquire", "kept", "--owner", "none", "--wait", "0"])
        .expect(4, "held");
    let _ = scene.run(["force-release", "kept", "--yes"]);
    let _ = scene.run(["release", "kept", "--request-id", "r"]);
    let kept = of("kept");
    assert_eq!(kept[..2], ["lock_acquired", "lock_refused"], "{kept:?}");
    assert_eq!(kept[2], "lock_released", "{kept:?}");
    let held = scene.hold("asked", [""; 0]);
    let _ = scene
        .run(["cancel", "asked", "--why", "for a test"])
        .expect(0, "asked");
    let _ = held.finish().expect(79, "superseded");
    let asked = of("asked");
    assert_eq!(
        asked,
        [
            "lock_acquired",
            "lock_cancelled",
            "lock_superseded",
            "lock_released"
        ]
    );
    let held = scene.hold("shared", ["--shared"]);
    let _ = scene
        .run([&["run", "shared"], &quick[..], &["--", "true"]].concat())
        .expect(4, "held");
    let _ = held.open().expect(0, "its end");
    assert_eq!(
        of("shared"),
        ["lock_acquired", "lock_refused", "lock_released"]
    );
    let held = scene.hold("lost", [""; 0]);
    fs::remove_file(scene.locks().join("lost.tenure")).unwrap();
    let _ = held.finish();
    let lost = of("lost");
    assert!(lost.contains(&"lock_lost".to_owned()), "{lost:?}");
    let _ = scene
        .run(["run", "exec", "--exec", "--", "true"])
        .expect(0, "became it");
    assert_eq!(of("exec"), ["lock_acquired"], "its end is the kernel's");
}

/// What the user wants recorded: by variable or file. Takeovers and forced ends in any case, and what a format's contract asks
/// for.
#[test]
fn the_user_says_how_much_is_recorded_table() {
    for (variable, file, events, has_arguments) in [
        (None, None, 2, false),
        (Some("all"), Some("incidents"), 2, false),
        (Some("incidents"), None, 0, false),
        (None, Some("incidents"), 0, false),
        (None, Some("arguments"), 2, true),
        (Some("arguments"), Some("all"), 2, true),
    ] {
        let scene = Scene::new();
        if let Some(word) = file {
            scene.write("tenure.toml", &format!("audit = {word:?}\n"));
        }
        let mut run = scene.tenure(["run", "x", "--", "sh", "-c", "exit 0 # secret"]);
        run.current_dir(scene.root());
        if let Some(word) = variable {
            run.env("TENURE_AUDIT", word);
        }
        let _ = answer(&mut run).expect(0, "a run");
        let at = format!("{variable:?} {file:?}");
        assert_eq!(told(&scene, &["x"]).len(), events, "{at}");
        let everything = scene.run(["audit", "--output", "json"]).stdout();
        assert_eq!(
            everything.contains("secret"),
            has_arguments,
            "{at}: {everything}"
        );
        let _ = scene
            .run(["acquire", "y", "--owner", "none"])
            .expect(0, "free");
        let mut forced = scene.tenure(["force-release", "y", "--yes"]);
        if let Some(word) = variable {
            forced.env("TENURE_AUDIT", word);
        }
        let _ = answer(&mut forced);
        let forced = told(&scene, &["y", "--event", "lock_released"]);
        assert_eq!(forced.len(), 1, "{at}");
    }
    let scene = Scene::new();
    let mut run = scene.tenure(["run", "x", "--", "true"]);
    let said = answer(run.env("TENURE_AUDIT", "some")).expect(2, "no such word");
    assert!(said.stderr().contains("TENURE_AUDIT") && said.stderr().contains("incidents"));
    assert!(!scene.locks().exists(), "before anything is made");
}

/// A disk that takes nothing costs one warning, and nothing else.
#[test]
fn an_audit_that_cannot_be_written_is_told_once() {
    let scene = Scene::new();
    fs::create_dir_all(scene.locks()).unwrap();
    fs::write(audit_dir(&scene), "in the way").unwrap();
    let said = scene
        .run(["run", "x", "--", "true"])
        .expect(0, "a run")
        .stderr();
    assert_eq!(
        said.matches("audit could not be written").count(),
        1,
        "{said}"
    );
}

/// A time as people write it, in their zone.
#[test]
fn times_are_read_as_people_write_them_table() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    log.append(&acquired("x", "req_1", TEN + 857, 1)).unwrap();
    for (since, is_after) in [
        ("2026-02-07 12:00", true),
        ("2026-02-07 12:00:01", false),
        ("2026-02-07T12:00", true),
        ("2026-02-07", true),
        ("2026-02-08", false),
        ("2026-02-07T10:00:00Z", true),
        ("2026-02-07T10:00:00.858Z", false),
        ("yesterday", false),
        ("today", false),
        ("00:00", false),
        ("1h", false),
    ] {
        let mut audit = scene.tenure(["audit", "--output", "json", "--since", since]);
        let answer = answer(audit.env("TZ", "Africa/Cairo"));
        let count = events(&answer.expect(0, since)).len();
        assert_eq!(count, usize::from(is_after), "{since}");
    }
    for (since, until, count) in [
        // A time with another zone is not one of here.
        ("2026-02-07 05:00[America/New_York]", "2026-02-08", 1),
        ("2026-02-07 05:00:01[America/New_York]", "2026-02-08", 0),
        // What a table shows to the second is found by that second.
        ("2026-02-07 12:00:00", "2026-02-07 12:00:00", 1),
        ("2026-02-07 12:00:01", "2026-02-07 12:00:01", 0),
    ] {
        let words = ["audit", "--output=json", "--since", since, "--until", until];
        let answer = answer(scene.tenure(words).env("TZ", "Africa/Cairo"));
        assert_eq!(events(&answer.expect(0, since)).len(), count, "{since}");
    }
    for wrong in [
        "25:00",
        "tomorrow",
        "2026-13-01",
        "",
        "20:00+02:00",
        "20:00-02:00",
        "20:00[Europe/Berlin]",
        "2026-02-07 10:00[Nowhere/Town]",
    ] {
        let _ = scene.run(["audit", "--since", wrong]).expect(2, wrong);
    }
    let words = ["audit", "--since", "today", "--until", "yesterday"];
    let _ = scene.run(words).expect(2, "no time at all");
}

/// In Berlin the hour from two on came twice on 2026-10-25, and not at all on 2026-03-29.
#[test]
fn an_hour_that_comes_twice_hides_no_event_table() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    // 00:15 UTC, 00:45, 01:15 and 01:45: a quarter past and before, by each of the two offsets.
    let begin = 1_792_886_400_000;
    for (token, minutes) in [(1, 15), (2, 45), (3, 75), (4, 105)] {
        let at_ms = begin + minutes * 60_000;
        log.append(&acquired("x", "req_1", at_ms, token)).unwrap();
    }
    let audit = |words: &[&str]| {
        let mut audit = scene.tenure(["audit"].iter().chain(words));
        answer(audit.env("TZ", "Europe/Berlin")).expect(0, "the events")
    };
    for (end, time, tokens) in [
        ("--since", "2026-10-25 02:30", &[2, 3, 4][..]),
        ("--until", "2026-10-25 02:30", &[1, 2, 3]),
        ("--until", "2026-10-25 02:59", &[1, 2, 3, 4]),
        ("--since", "2026-10-25 02:30:00+01:00", &[4]),
        ("--until", "2026-10-25 02:30:00+02:00", &[1]),
        ("--since", "2026-03-29 02:30", &[1, 2, 3, 4]),
        ("--until", "2026-03-29 02:30", &[]),
    ] {
        let found = events(&audit(&["--output", "json", end, time]));
        let found: Vec<_> = found.iter().map(|event| event["token"].as_u64()).collect();
        let expected: Vec<_> = tokens.iter().copied().map(Some).collect();
        assert_eq!(found, expected, "{end} {time}");
    }
    let shown = audit(&[]).stdout();
    for (row, time) in shown.lines().skip(1).zip([
        "2026-10-25 02:15:00+02:00",
        "2026-10-25 02:45:00+02:00",
        "2026-10-25 02:15:00+01:00",
        "2026-10-25 02:45:00+01:00",
    ]) {
        assert!(row.starts_with(time), "{shown}");
        // What is shown can be typed.
        let (since, until) = (["--since", time], ["--until", time]);
        let one = audit(&[since, until].concat()).stdout();
        assert_eq!(one.lines().nth(1), Some(row.trim_end()), "{time}");
    }
    let mut unknown = scene.tenure(["audit"]);
    let unknown = answer(unknown.env("TZ", "Nowhere/Town")).expect(0, "the events");
    let shown = unknown.stdout();
    assert!(shown.starts_with("TIME (UTC) "), "{shown}");
    assert!(shown.contains("\n2026-10-25 00:15:00 "), "{shown}");
}

#[test]
fn a_file_that_another_program_made_of_the_audit_is_named() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    log.append(&acquired("x", "req_1", TEN, 1)).unwrap();
    let place = |name: &str| audit_dir(&scene).join(name);
    for (name, told) in [
        ("audit.jsonl-20260208", "audit.jsonl-20260208 is not read: "),
        (
            "audit.jsonl.2.gz",
            "audit.jsonl-20260208 (and 1 more) is not read: ",
        ),
    ] {
        fs::write(place(name), "").unwrap();
        let answer = scene.run(["audit"]).expect(0, name);
        assert!(answer.stderr().contains(told), "{}", answer.stderr());
        assert_eq!(answer.stdout().lines().count(), 2);
    }
    fs::remove_file(place("audit.jsonl.2.gz")).unwrap();
    // Whoever may make files there says nothing to the terminal.
    fs::write(place("audit.\u{1b}[31m.jsonl"), "").unwrap();
    let told = scene.run(["audit"]).expect(0, "a name").stderr();
    assert!(
        !told.contains('\u{1b}') && told.contains("1 more"),
        "{told}"
    );
    fs::remove_file(place("audit.\u{1b}[31m.jsonl")).unwrap();
    fs::rename(place("audit.jsonl-20260208"), place("audit.jsonl.1")).unwrap();
    assert_eq!(scene.run(["audit"]).expect(0, "all").stderr(), "");
}

#[test]
fn the_folder_is_the_flags_then_the_environments_then_the_projects_then_beside_the_locks() {
    let scene = Scene::new();
    let folders = ["flag", "environment", "project"].map(|name| scene.path(name));
    for folder in folders.iter().chain([&audit_dir(&scene)]) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let log = AuditLog::new(folder.clone(), Layout::OneFile);
        log.append(&acquired(name, "req_1", TEN, 1)).unwrap();
    }
    let shown = |flag: bool, variable: bool, project: bool| {
        let mut command = scene.tenure(["audit", "--output", "json"]);
        command.current_dir(scene.root());
        if flag {
            command.args(["--audit-dir", "flag"]);
        }
        if variable {
            command.env("TENURE_AUDIT_DIR", scene.path("environment"));
        }
        let config = format!(
            "dir = \"locks\"\n{}",
            if project {
                "audit_dir = \"project\"\n"
            } else {
                ""
            }
        );
        scene.write("tenure.toml", &config);
        command.env_remove("TENURE_DIR");
        let events = events(&answer(&mut command).expect(0, "a folder"));
        assert_eq!(events.len(), 1);
        events[0]["lock_name"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown(true, true, true), "flag");
    assert_eq!(shown(false, true, true), "environment");
    assert_eq!(shown(false, false, true), "project");
    assert_eq!(shown(false, false, false), "audit");
    let before = scene.run(["--audit-dir", folders[0].to_str().unwrap(), "audit", "flag"]);
    assert!(
        before
            .expect(0, "before the verb")
            .stdout()
            .contains("acquired")
    );
}

#[test]
fn an_audit_beside_the_locks_is_no_lock() {
    let scene = Scene::new();
    fill(&scene);
    assert_eq!(scene.run(["list"]).stdout(), "no locks\n");
    let _ = scene.run(["clean"]).expect(0, "nothing to clean");
    assert_eq!(events(&scene.run(["audit", "--output", "json"])).len(), 6);
}

#[test]
fn a_torn_line_is_left_out_with_a_warning() {
    let scene = Scene::new();
    fill(&scene);
    let path = audit_dir(&scene).join("audit.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"{\"event\":\"lock_acq").unwrap();
    let answer = scene.run(["audit", "--output", "json"]).expect(0, "torn");
    assert_eq!(events(&answer).len(), 6);
    assert!(
        answer.json()["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("1 line")
    );
    let answer = scene.run(["audit", "-q"]).expect(0, "torn");
    assert_eq!(
        (answer.stdout().lines().count(), answer.stderr()),
        (7, String::new()),
        "with the names of the columns"
    );
}

#[test]
fn forged_content_is_one_line_and_no_command_to_the_terminal() {
    let scene = Scene::new();
    let evil = "x\n{\"event\":\"lock_released\"}\u{1b}[2J\u{9b}1m\u{202e}\u{2028}";
    let forged = record("deploy", "req_1", TEN, |occasion| {
        Record::heartbeat_failed(occasion, 3, evil)
    });
    log(&scene, Layout::OneFile).append(&forged).unwrap();
    let shown = scene.run(["audit"]).expect(0, "text").stdout();
    assert_eq!(shown.lines().count(), 2, "{shown:?}");
    let harmless = |text: &str| {
        let marks = ['\u{202e}', '\u{2028}'];
        text.trim_end()
            .chars()
            .all(|c| !c.is_control() && !marks.contains(&c))
    };
    assert!(shown.lines().all(harmless), "{shown:?}");
    let path = audit_dir(&scene).join("audit.jsonl");
    let raw = fs::read_to_string(path).unwrap();
    assert!(raw.lines().count() == 1 && harmless(&raw), "{raw:?}");
    let events = events(&scene.run(["audit", "--output", "json"]));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["error"], evil, "and nothing is lost");
}

#[test]
fn a_folder_that_anybody_could_have_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    fill(&scene);
    fs::set_permissions(audit_dir(&scene), fs::Permissions::from_mode(0o777)).unwrap();
    let answer = scene
        .run(["audit", "--output", "json"])
        .expect(7, "not safe");
    assert_eq!(answer.json()["error"]["code"], "UNSAFE_PLACE");
}

/// `audit -f` and the lines that it has shown.
struct Following {
    started: Started,
    out: BufReader<std::process::ChildStdout>,
}

impl Following {
    fn new(scene: &Scene, words: &[&str]) -> Self {
        let mut command = scene.tenure(["audit", "-f"].iter().chain(words));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = Started::new(&mut command);
        let out = BufReader::new(started.take_stdout());
        Self { started, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn token(&mut self) -> u64 {
        let line = self.line();
        let event: Value = serde_json::from_str(&line).expect("one event in one line");
        event["token"].as_u64().unwrap()
    }

    #[track_caller]
    fn ends(mut self, code: i32) {
        assert_eq!(self.started.end().code(), Some(code));
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut rest).unwrap();
        assert_eq!(rest, "", "nothing but events");
    }
}

#[test]
fn following_shows_every_event_once_across_rotations_days_and_new_files() {
    let scene = Scene::new();
    let one = log(&scene, Layout::OneFile).rotating(2_000, 3);
    let many = log(&scene, Layout::PerRequest);
    one.append(&acquired("x", "req_1", TEN, 1)).unwrap();
    let mut following = Following::new(&scene, &["--output", "json"]);
    assert_eq!(following.token(), 1, "what there is");
    for token in 2..=60_u64 {
        let id = format!("req_{token}");
        let at_ms = TEN + token * 3_600_000;
        let log = if token % 3 == 0 { &many } else { &one };
        log.append(&acquired("x", &id, at_ms, token)).unwrap();
        assert_eq!(following.token(), token, "what comes, one after the other");
    }
    assert!(
        audit_dir(&scene).join("audit.jsonl.2").exists(),
        "it was rotated"
    );
    following.started.signal(Signal::TERM);
    following.ends(143);
}

#[test]
fn following_begins_before_there_is_an_audit_and_ends_by_a_signal() {
    let scene = Scene::new();
    let mut following = Following::new(&scene, &["deploy", "--event", "lock_acquired"]);
    // Seen in the kernel's table: from then on a signal is collected.
    let status = format!("/proc/{}/status", following.started.pid());
    eventually("signals to be collected", || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|caught| u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0)
    });
    fill(&scene);
    assert!(following.line().starts_with("TIME "));
    let row = following.line();
    assert!(
        row.contains("acquired  deploy  -") && row.ends_with("req_1\n"),
        "{row}"
    );
    following.started.signal(Signal::INT);
    following.ends(130);
}

#[test]
fn following_ends_when_its_reader_has_gone() {
    let scene = Scene::new();
    fill(&scene);
    let line = "{ tenure audit -f; echo \"code $?\" >&2; } | head -n 2";
    let answer = scene.shell(line);
    assert_eq!(answer.stdout().lines().count(), 2);
    assert_eq!(
        answer.stderr(),
        "code 0\n",
        "neither a message nor a failure"
    );
}

#[test]
fn following_until_a_time_that_has_passed_shows_what_there_is() {
    let scene = Scene::new();
    fill(&scene);
    let words = ["audit", "-f", "--until", "2026-02-07T10:00:02Z"];
    let answer = scene.run(words).expect(0, "the time has come");
    assert_eq!(answer.stdout().lines().count(), 1 + 3);
}

#[test]
fn following_prints_lines_and_no_documents() {
    let scene = Scene::new();
    let answer = scene.run(["audit", "-f", "--output", "yaml"]);
    assert!(answer.expect(2, "yaml").stdout().contains("BAD_ARGUMENTS"));
}

/// A reader that holds the pipe and does not read must not keep us.
#[test]
fn following_ends_by_a_signal_though_nobody_reads() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    for token in 0..2_000 {
        log.append(&acquired("x", "req_1", TEN, token)).unwrap();
    }
    let following = Following::new(&scene, &[]);
    let mut started = following.started;
    let pid = started.pid();
    eventually("it to sleep", || state(pid) == Some('S'));
    started.signal(Signal::TERM);
    assert_eq!(started.end().code(), Some(143));
    drop(following.out);
}

#[test]
fn a_reader_of_the_audit_that_has_gone_is_silent() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    for token in 0..2_000 {
        log.append(&acquired("x", "req_1", TEN, token)).unwrap();
    }
    for output in ["text", "json", "yaml"] {
        let line = format!("{{ tenure audit --output {output}; echo \"code $?\" >&2; }} | true");
        assert_eq!(scene.shell(&line).stderr(), "code 0\n", "{output}");
    }
}

/// Two hundred processes that were started at once, and each event of theirs once and whole.
#[test]
fn two_hundred_writers_at_once_lose_no_line() {
    const WRITERS: usize = 200;
    let scene = Scene::new();
    let audit = scene.path("events");
    let dir = audit.to_str().unwrap();
    let started: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (lock, id) = (format!("x{number}"), format!("req_{number}"));
            let words = ["--audit-dir", dir, "run", &lock, "-q", "--request-id", &id];
            let mut command = scene.tenure(words.into_iter().chain(["--", "true"]));
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            Started::new(&mut command)
        })
        .collect();
    for mut writer in started {
        assert_eq!(writer.end().code(), Some(0));
    }
    let text = fs::read_to_string(audit.join("audit.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole too");
    let mut found: Vec<_> = (text.lines().filter(|line| !line.is_empty()))
        .map(|line| {
            let event: Value = serde_json::from_str(line).expect(line);
            let word = |key: &str| event[key].as_str().unwrap().to_owned();
            (word("lock_name"), word("request_id"), word("event"))
        })
        .collect();
    found.sort();
    let mut expected: Vec<_> = (0..WRITERS)
        .flat_map(|number| {
            ["lock_acquired", "lock_released"]
                .map(|event| (format!("x{number}"), format!("req_{number}"), event.into()))
        })
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

/// Two hundred writers at once, each with descriptors of its own as a process has, while the files are rotated.
#[test]
fn rotation_under_two_hundred_writers_loses_no_line_and_keeps_the_bound() {
    const WRITERS: u64 = 200;
    let scene = Scene::new();
    let write = |log: &AuditLog, make: &(dyn Fn(u64) -> Record + Sync)| {
        std::thread::scope(|scope| {
            for number in 0..WRITERS {
                scope.spawn(move || log.append(&make(number)).unwrap());
            }
        });
    };
    let patient = || log(&scene, Layout::OneFile).waiting_at_most(Duration::from_secs(50));
    let all = patient().rotating(1_000, 200);
    write(&all, &|number| acquired("x", "req_1", TEN + number, number));
    let found = events(&scene.run(["audit", "--output", "json"]).expect(0, "all"));
    let mut tokens: Vec<_> = found.iter().map(|event| event["token"].as_u64()).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..WRITERS).map(Some).collect::<Vec<_>>());
    let few = patient().rotating(20_000, 2);
    let nobody = serde_json::Map::new();
    write(&few, &|number| {
        record("x", "req_1", TEN + number, |occasion| {
            Record::lock_refused(occasion, "LOCK_HELD", &nobody, Duration::ZERO)
        })
    });
    let sizes: Vec<_> = fs::read_dir(audit_dir(&scene))
        .unwrap()
        .map(Result::unwrap)
        .filter(|file| file.file_name().to_str().unwrap().starts_with("refusals."))
        .map(|file| file.metadata().unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 3, "the file and two older ones");
    assert!(sizes.iter().all(|size| *size < 3_000), "{sizes:?}");
}

#[test]
fn a_document_of_many_events_is_whole_and_ends_with_its_warnings() {
    let scene = Scene::new();
    let log = log(&scene, Layout::OneFile);
    for token in 0..2_000 {
        log.append(&acquired("x", "req_1", TEN, token)).unwrap();
    }
    let path = audit_dir(&scene).join("audit.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"{torn\n").unwrap();
    let answer = scene.run(["audit", "--output", "json"]).expect(0, "all");
    assert_eq!(events(&answer).len(), 2_000);
    let warnings = answer.json()["warnings"].clone();
    assert_eq!(warnings.as_array().unwrap().len(), 1, "{warnings}");
    let yaml = scene.run(["audit", "--output", "yaml"]).expect(0, "all");
    assert_eq!(yaml.stdout().matches("event: lock_acquired").count(), 2_000);
    assert!(yaml.stdout().contains("1 line of the audit"));
}

/// A caller that names the folder of the locks does not know of a link in it.
#[test]
fn a_link_below_the_lock_folder_is_not_followed_and_a_named_one_is() {
    use std::os::unix::fs::symlink;
    let scene = Scene::new();
    let elsewhere = scene.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let root = scene.path("project");
    fs::create_dir_all(root.join(".tenure")).unwrap();
    fs::create_dir(scene.locks()).unwrap();
    let take = |number: u32, more: &[&str]| {
        let name = format!("x{number}");
        let words = ["acquire", &name, "--owner", "none"];
        scene
            .run([&words, more].concat())
            .expect(0, "an audit stops nothing")
    };
    let sprint = |words: &[&str]| {
        let root = root.to_str().unwrap();
        scene.run([&["--profile", "sprint"], words, &["--project-root", root]].concat())
    };
    let nothing = |place: &Path| {
        let found = fs::read_dir(place).unwrap().count();
        assert_eq!(found, 0, "nothing is written to {}", place.display());
    };
    // The folder itself, and the one before it.
    for (link, below) in [
        (scene.locks().join("audit"), ""),
        (root.join(".tenure/audit"), ""),
        (root.join(".tenure"), "audit"),
    ] {
        let _ = fs::remove_dir_all(root.join(".tenure"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&elsewhere, &link).unwrap();
        if link.starts_with(scene.locks()) {
            let said = take(1, &[]);
            assert!(said.stderr().contains("it is a link"), "{}", said.said());
            let _ = scene.run(["audit"]).expect(7, "nor is it read");
        } else {
            let _ = sprint(&[
                "acquire",
                "--session-id",
                "s",
                "--epic-spec",
                "e",
                "--force",
            ]);
            let _ = sprint(&["audit"]).expect(7, "nor is it read");
        }
        nothing(&elsewhere);
        assert!(!elsewhere.join(below).join("audit.jsonl").exists());
    }
    let link = scene.locks().join("audit");
    let _ = take(2, &["--audit-dir", link.to_str().unwrap()]);
    assert!(
        elsewhere.join("audit.jsonl").exists(),
        "naming it is consent"
    );
}
