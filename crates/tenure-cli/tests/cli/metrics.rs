//! `metrics`: what an audit says is counted once, whatever becomes of its files and however many count, in text that
//! Prometheus reads. `scripts/try-metrics` asks Prometheus itself.

#![allow(
    clippy::disallowed_methods,
    reason = "a test takes away what others look for"
)]

use crate::support::{Answer, Gate, Scene, Started};
use serde_json::json;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_core::{LockName, RequestId};
use tenure_engine::audit::{AuditLog, Ending, Layout, Occasion, Record, Releaser};
use tenure_os::clock::{Clock, SystemClock};

const HOUR_MS: u64 = 3_600_000;

/// An audit that a test writes through the library, with one event a millisecond. Two events fill a file.
struct Log {
    log: AuditLog,
    at_ms: Cell<u64>,
}

impl Log {
    fn of(scene: &Scene) -> Self {
        Self::rotating(scene, 800)
    }

    fn rotating(scene: &Scene, bytes: u64) -> Self {
        let log = AuditLog::new(scene.locks().join("audit"), Layout::OneFile);
        Self {
            log: log.rotating(bytes, 3),
            at_ms: Cell::new(now_ms() - HOUR_MS),
        }
    }

    fn add(&self, lock: &str, make: impl FnOnce(Occasion<'_>) -> Record) {
        self.at_ms.set(self.at_ms.get() + 1);
        self.write(lock, self.at_ms.get(), make);
    }

    fn write(&self, lock: &str, at_ms: u64, make: impl FnOnce(Occasion<'_>) -> Record) {
        let (lock, id) = (
            LockName::new(lock).unwrap(),
            RequestId::new("req_1").unwrap(),
        );
        self.log
            .append(&make(Occasion::new(&lock, &id, at_ms)))
            .unwrap();
    }

    fn granted(&self, lock: &str, waited_ms: u64) {
        self.add(lock, |occasion| {
            Record::lock_acquired(occasion, Path::new("/l"), Duration::from_secs(9), 1)
                .waited(Duration::from_millis(waited_ms), None)
        });
    }

    fn released(&self, lock: &str, held_ms: u64) {
        let held = Duration::from_millis(held_ms);
        self.add(lock, |occasion| {
            Record::lock_released(occasion, held, Ending::Success, Releaser::Owner)
        });
    }

    fn skipped(&self, lock: &str) {
        self.add(lock, |occasion| {
            Record::lock_skipped(occasion, &serde_json::Map::new(), Duration::ZERO)
        });
    }
}

fn now_ms() -> u64 {
    SystemClock::new(None).now().wall_us / 1_000
}

/// Samples of a text, by name and labels without the place.
fn samples(answer: &Answer) -> BTreeMap<String, String> {
    parsed(&answer.stdout())
}

fn parsed(text: &str) -> BTreeMap<String, String> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = name.split_once('{').unwrap();
        let labels = labels.strip_suffix('}').unwrap();
        let (place, rest) = labels.split_once(',').unwrap_or((labels, ""));
        assert!(place.starts_with("place=\""), "{line}");
        let key = format!("{name}{{{rest}}}");
        let before = samples.insert(key, value.to_owned());
        assert_eq!(before, None, "{line} comes twice");
    }
    samples
}

#[track_caller]
fn metrics(scene: &Scene, words: &[&str]) -> BTreeMap<String, String> {
    let words = ["metrics"].iter().chain(words);
    let answer = scene.run(words).expect(0, "metrics");
    assert_eq!(answer.stderr(), "");
    samples(&answer)
}

#[track_caller]
fn has(samples: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        let found = samples.get(*name).map(String::as_str);
        assert_eq!(found, Some(*value), "{name} in {samples:#?}");
    }
}

fn state_file(scene: &Scene) -> PathBuf {
    let folder = scene.path(".local/state/tenure/metrics");
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn events_of_each_kind_are_counted_by_lock() {
    let scene = Scene::new();
    assert_eq!(metrics(&scene, &[])["tenure_unreadable_locks{}"], "0");
    let log = Log::of(&scene);
    log.skipped("deploy");
    log.granted("deploy", 0);
    log.released("deploy", 61_500);
    log.granted("deploy", 100);
    log.skipped("deploy");
    log.skipped("deploy");
    let refusal = serde_json::Map::new();
    log.add("db", |occasion| {
        Record::lock_refused(occasion, "LOCK_HELD", &refusal, Duration::ZERO)
    });
    log.add("db", |occasion| Record::lock_lost(occasion, None));
    log.add("db", |occasion| {
        Record::lock_superseded(occasion, &refusal, None)
    });
    let found = metrics(&scene, &[]);
    has(
        &found,
        &[
            ("tenure_grants_total{lock=\"deploy\"}", "2"),
            ("tenure_skips_total{lock=\"deploy\"}", "3"),
            ("tenure_skips_since_grant{lock=\"deploy\"}", "2"),
            (
                "tenure_wait_seconds_bucket{lock=\"deploy\",le=\"0.1\"}",
                "2",
            ),
            ("tenure_wait_seconds_sum{lock=\"deploy\"}", "0.1"),
            ("tenure_hold_seconds_bucket{lock=\"deploy\",le=\"60\"}", "0"),
            (
                "tenure_hold_seconds_bucket{lock=\"deploy\",le=\"300\"}",
                "1",
            ),
            (
                "tenure_hold_seconds_bucket{lock=\"deploy\",le=\"+Inf\"}",
                "1",
            ),
            ("tenure_hold_seconds_sum{lock=\"deploy\"}", "61.5"),
            ("tenure_hold_seconds_count{lock=\"deploy\"}", "1"),
            ("tenure_refusals_total{lock=\"db\"}", "1"),
            ("tenure_refusals_since_grant{lock=\"db\"}", "1"),
            ("tenure_losses_total{lock=\"db\"}", "1"),
            ("tenure_supersedes_total{lock=\"db\"}", "1"),
            ("tenure_takeovers_total{lock=\"db\"}", "0"),
            ("tenure_last_grant_timestamp_seconds{lock=\"db\"}", "0"),
            ("tenure_holders{lock=\"deploy\"}", "0"),
        ],
    );
    assert_eq!(metrics(&scene, &[]), found, "nothing counts twice");
}

#[test]
fn no_count_falls_when_files_are_rotated_or_removed() {
    let scene = Scene::new();
    let log = Log::of(&scene);
    let audit = scene.locks().join("audit");
    let mut grants = 0_u64;
    for turn in 0..8 {
        match turn {
            4 => fs::remove_file(audit.join("audit.jsonl")).unwrap(),
            6 => fs::remove_dir_all(&audit).unwrap(),
            _ => {}
        }
        // What is written in between fits into the files that rotation keeps.
        for _ in 0..turn.min(4) {
            log.granted("deploy", 0);
            grants += 1;
        }
        let found = metrics(&scene, &[]);
        let shown = found.get("tenure_grants_total{lock=\"deploy\"}");
        let shown: u64 = shown.map_or(0, |shown| shown.parse().unwrap());
        assert_eq!(shown, grants, "turn {turn}");
    }
}

#[test]
fn callers_at_once_count_each_event_once() {
    let scene = Scene::new();
    let log = Log::rotating(&scene, 1 << 20);
    let mut shown: Vec<Answer> = Vec::new();
    let mut written = 0;
    for _ in 0..3 {
        let mut callers: Vec<_> = (0..4)
            .map(|_| Started::piped(&mut scene.tenure(["metrics"])))
            .collect();
        for _ in 0..40 {
            log.granted("deploy", 0);
            written += 1;
        }
        shown.extend(callers.drain(..).map(Started::finish));
    }
    for answer in shown {
        let found = samples(&answer.expect(0, "one of several"));
        let found = found.get("tenure_grants_total{lock=\"deploy\"}");
        let found: u64 = found.map_or(0, |found| found.parse().unwrap());
        assert!(found <= written, "{found} of {written}");
    }
    has(
        &metrics(&scene, &[]),
        &[("tenure_grants_total{lock=\"deploy\"}", "120")],
    );
}

#[test]
fn locks_beyond_the_bound_share_one_label_and_keep_it() {
    let scene = Scene::new();
    let log = Log::of(&scene);
    let few = ["--max-locks", "2"];
    for lock in ["one", "two", "three", "four"] {
        log.granted(lock, 0);
    }
    for _ in 0..2 {
        let found = metrics(&scene, &few);
        let labels = found
            .keys()
            .filter(|key| key.starts_with("tenure_grants_total"));
        assert_eq!(labels.count(), 3, "{found:#?}");
        has(
            &found,
            &[
                ("tenure_grants_total{lock=\"one\"}", "1"),
                ("tenure_grants_total{lock=\"two\"}", "1"),
                ("tenure_grants_total{lock=\"(other)\"}", "2"),
            ],
        );
    }
    // Fewer take no label away, and with more a lock counts by itself from then on.
    log.granted("three", 0);
    has(
        &metrics(&scene, &["--max-locks", "1"]),
        &[
            ("tenure_grants_total{lock=\"two\"}", "1"),
            ("tenure_grants_total{lock=\"(other)\"}", "3"),
        ],
    );
    log.granted("three", 0);
    has(
        &metrics(&scene, &["--max-locks", "3"]),
        &[
            ("tenure_grants_total{lock=\"three\"}", "1"),
            ("tenure_grants_total{lock=\"(other)\"}", "3"),
        ],
    );
}

#[test]
fn a_lock_that_is_long_unused_gives_its_label_up() {
    let scene = Scene::new();
    let log = Log::of(&scene);
    let long_ago = now_ms() - 31 * 24 * HOUR_MS;
    log.write("old", long_ago, |occasion| {
        Record::lock_lost(occasion, None)
    });
    log.granted("new", 0);
    let found = metrics(&scene, &["--max-locks", "1"]);
    has(&found, &[("tenure_grants_total{lock=\"new\"}", "1")]);
    assert!(!found.contains_key("tenure_grants_total{lock=\"old\"}"));
    assert!(!found.contains_key("tenure_grants_total{lock=\"(other)\"}"));
}

#[test]
fn holders_and_waiters_of_now_are_shown_with_their_ages() {
    let scene = Scene::new();
    let holder = scene.hold("deploy", ["--slots", "2"]);
    let second = scene.hold("deploy", ["--slots", "2"]);
    let gate = Gate::new(&scene, "waiter");
    let mut waiter = scene.tenure(["run", "deploy", "--slots", "2", "-w", "forever", "--", "sh"]);
    let waiter = Started::piped(waiter.args(["-c", &gate.script("")]));
    scene.until_queued("deploy", 1);
    let found = metrics(&scene, &[]);
    has(
        &found,
        &[
            ("tenure_holders{lock=\"deploy\"}", "2"),
            ("tenure_waiters{lock=\"deploy\"}", "1"),
            ("tenure_grants_total{lock=\"deploy\"}", "2"),
        ],
    );
    for age in ["oldest_hold", "oldest_waiter"] {
        let age: f64 = found[&format!("tenure_{age}_age_seconds{{lock=\"deploy\"}}")]
            .parse()
            .unwrap();
        assert!((0.0..60.0).contains(&age), "{age}");
    }
    gate.open();
    holder.open().expect(0, "the first");
    second.open().expect(0, "the second");
    waiter.finish().expect(0, "the waiter");
    has(
        &metrics(&scene, &[]),
        &[
            ("tenure_holders{lock=\"deploy\"}", "0"),
            ("tenure_waiters{lock=\"deploy\"}", "0"),
            ("tenure_oldest_waiter_age_seconds{lock=\"deploy\"}", "0"),
            ("tenure_hold_seconds_count{lock=\"deploy\"}", "3"),
        ],
    );
}

#[test]
fn the_textfile_is_replaced_whole_and_everybody_may_read_it() {
    let scene = Scene::new();
    Log::of(&scene).granted("deploy", 0);
    fs::create_dir(scene.path("collector")).unwrap();
    let file = scene.path("collector/tenure.prom");
    fs::write(&file, "old").unwrap();
    let write = format!("umask 077; tenure metrics --textfile '{}'", file.display());
    let answer = scene.shell(&write).expect(0, "into the file");
    assert_eq!((answer.stdout(), answer.stderr()), Default::default());
    let found = parsed(&fs::read_to_string(&file).unwrap());
    has(&found, &[("tenure_grants_total{lock=\"deploy\"}", "1")]);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    assert_eq!(fs::read_dir(scene.path("collector")).unwrap().count(), 1);
    let state = fs::metadata(state_file(&scene)).unwrap();
    assert_eq!(state.permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_could_not_be_shown_is_shown_by_the_next_call() {
    let scene = Scene::new();
    Log::of(&scene).granted("deploy", 0);
    let words = ["metrics", "--textfile", "/dev/fd/tenure.prom"];
    let answer = scene.run(words);
    assert_ne!(answer.code(), 0, "a folder of no files");
    assert!(
        answer.stderr().contains("cannot be written"),
        "{}",
        answer.stderr()
    );
    has(
        &metrics(&scene, &[]),
        &[("tenure_grants_total{lock=\"deploy\"}", "1")],
    );
}

#[test]
fn mistakes_are_refused_before_anything_is_touched() {
    let scene = Scene::new();
    let wrong = |words: &[&str], said: &str| {
        let words = ["metrics"].iter().chain(words);
        let answer = scene.run(words).expect(2, said);
        let shown = answer.stdout() + &answer.stderr();
        assert!(shown.contains(said), "{shown}");
    };
    wrong(&["--textfile", "tenure.txt"], ".prom");
    wrong(&["--textfile", "/no/such/tenure.prom"], "no folder");
    wrong(&["--textfile", ""], "--textfile");
    wrong(&["--state", "/"], "--state");
    wrong(&["--max-locks", "0"], "--max-locks");
    let both = scene.path("x.prom");
    let both = both.to_str().unwrap();
    wrong(&["--textfile", both, "--state", both], "each needs its own");
    let other = scene.path("other");
    std::os::unix::fs::symlink(scene.root(), &other).unwrap();
    let other = other.join("x.prom");
    let words = ["--textfile", both, "--state", other.to_str().unwrap()];
    wrong(&words, "each needs its own");
    fs::create_dir(both).unwrap();
    wrong(&["--textfile", both], "not a regular file");
    wrong(&["--state", both], "not a regular file");
    wrong(&["--state", "/dev/null"], "not a regular file");
    wrong(&["--output", "json"], "no other format");
    assert!(!scene.path(".local").exists() && !scene.locks().exists());
}

#[test]
fn a_file_that_has_no_counts_or_those_of_another_audit_stays() {
    let scene = Scene::new();
    let state = scene.write("state", "notes of mine\n");
    let words = ["metrics", "--state", state.to_str().unwrap()];
    let answer = scene.run(words).expect(1, "notes");
    assert!(
        answer.stderr().contains("remove it to count anew"),
        "{}",
        answer.stderr()
    );
    assert_eq!(fs::read_to_string(&state).unwrap(), "notes of mine\n");
    let later = json!({"tenure_metrics": 2, "what": "ever"}).to_string();
    fs::write(&state, &later).unwrap();
    let answer = scene.run(words).expect(1, "a later version");
    assert!(
        answer.stderr().contains("another version"),
        "{}",
        answer.stderr()
    );
    fs::remove_file(&state).unwrap();
    Log::of(&scene).granted("deploy", 0);
    scene.run(words).expect(0, "the first");
    let counts = fs::read_to_string(&state).unwrap();
    let damaged = counts.replace("\"grants\":1,", &format!("\"grants\":{},", u64::MAX));
    let damaged = damaged.replace("[0,", &format!("[{},", u64::MAX));
    assert_ne!(counts, damaged);
    fs::write(&state, damaged).unwrap();
    Log::of(&scene).granted("deploy", 0);
    scene.run(words).expect(0, "counts that cannot grow");
    fs::write(&state, counts).unwrap();
    let other = scene.path("other");
    let words = words.into_iter().chain(["--dir", other.to_str().unwrap()]);
    let answer = scene.run(words).expect(2, "another place");
    assert!(
        answer.stderr().contains("counts the audit"),
        "{}",
        answer.stderr()
    );
}

#[test]
fn alert_rules_ask_for_metrics_that_there_are() {
    let scene = Scene::new();
    let shown = scene.run(["metrics"]).expect(0, "metrics").stdout();
    let rules = include_str!("../../../../packaging/prometheus/tenure.rules.yml");
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = rules.split(|c| !is_of_name(c));
    let names: BTreeSet<_> = words.filter(|word| word.starts_with("tenure_")).collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(shown.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

#[test]
fn the_place_is_a_label_by_the_rules_of_prometheus() {
    let scene = Scene::new();
    let dir = scene.path("a\"b\\c\nd\u{1b}[2J");
    let words = ["metrics", "--dir", dir.to_str().unwrap()];
    let answer = scene.run(words).expect(0, "metrics");
    let shown = answer.stdout();
    let line = shown.lines().last().unwrap();
    assert!(line.contains(r#"a\"b\\c"#), "{line}");
    assert!(
        !shown.contains('\u{1b}') && line.ends_with("\"} 0"),
        "{line}"
    );
}
