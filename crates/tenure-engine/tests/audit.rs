//! The audit as other programs see it: the content of its files, and what a reader gets back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tenure_core::{LockName, RequestId};
#[cfg(unix)]
use tenure_engine::audit::AuditError;
use tenure_engine::audit::{
    AuditLog, Ending, Entry, EventName, Events, FILE, Filter, Layout, Occasion, Record, Releaser,
};

/// 2026-02-07T10:00:00Z.
const TEN: u64 = 1_770_458_400_000;
const DAY: u64 = 86_400_000;

struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("locks/audit")
    }

    fn log(&self, layout: Layout) -> AuditLog {
        AuditLog::new(self.dir(), layout)
    }

    fn read(&self, filter: Filter) -> (Vec<Entry>, u64) {
        let mut events = Events::open(self.dir(), filter).unwrap();
        let entries: Vec<_> = events.by_ref().collect();
        assert_eq!(events.problems(), [] as [String; 0]);
        (entries, events.skipped())
    }

    fn tokens(&self) -> Vec<u64> {
        self.read(Filter::default()).0.iter().map(token).collect()
    }
}

fn token(entry: &Entry) -> u64 {
    entry.fields()["token"].as_u64().unwrap()
}

fn acquired(lock: &str, id: &str, at_ms: u64, token: u64) -> Record {
    let (lock, id) = (LockName::new(lock).unwrap(), RequestId::new(id).unwrap());
    let occasion = Occasion::new(&lock, &id, at_ms);
    Record::lock_acquired(
        occasion,
        Path::new("/l/deploy.lock"),
        Duration::from_secs(9),
        token,
    )
}

fn released(lock: &str, id: &str, at_ms: u64) -> Record {
    let (lock, id) = (LockName::new(lock).unwrap(), RequestId::new(id).unwrap());
    let occasion = Occasion::new(&lock, &id, at_ms);
    Record::lock_released(
        occasion,
        Duration::from_secs(1),
        Ending::Success,
        Releaser::Owner,
    )
}

fn add(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn files_lie_where_the_layout_says_and_are_our_own() {
    let scene = Scene::new();
    let one = acquired("deploy", "req_1", TEN, 1);
    scene.log(Layout::PerRequest).append(&one).unwrap();
    scene.log(Layout::OneFile).append(&one).unwrap();
    let per_request = scene.dir().join("2026-02-07/req_1.jsonl");
    let one_file = scene.dir().join("audit.jsonl");
    for path in [&per_request, &one_file] {
        assert_eq!(fs::read_to_string(path).unwrap(), one.line());
        #[cfg(unix)]
        {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
    }
    #[cfg(unix)]
    for folder in [&scene.dir(), &scene.dir().join("2026-02-07")] {
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
    }
}

#[test]
fn the_date_is_the_records_own_in_utc() {
    let scene = Scene::new();
    let log = scene.log(Layout::PerRequest);
    for (at_ms, date) in [
        (TEN + 14 * 3_600_000 - 1, "2026-02-07"),
        (TEN + 14 * 3_600_000, "2026-02-08"),
        (0, "1970-01-01"),
    ] {
        let record = acquired("deploy", "req_1", at_ms, 1);
        let path = scene.dir().join(date).join("req_1.jsonl");
        assert_eq!(log.path_of(&record), path);
    }
}

#[test]
fn many_writers_and_rotations_lose_tear_and_repeat_nothing() {
    const WRITERS: u64 = 8;
    const EVENTS: u64 = 200;
    const LIMIT: u64 = 4 << 10;
    for (layout, limit) in [
        (Layout::OneFile, LIMIT),
        (Layout::OneFile, u64::MAX),
        (Layout::PerRequest, 1),
    ] {
        let scene = Scene::new();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                // A log for each, as each process has its own: they share only the files.
                let log = scene.log(layout).rotating(limit, 400);
                scope.spawn(move || {
                    for number in 0..EVENTS {
                        let number = writer * EVENTS + number;
                        let record = acquired("deploy", "req_1", TEN + number, number);
                        log.append(&record).unwrap();
                    }
                });
            }
        });
        let (entries, skipped) = scene.read(Filter::default());
        let found: BTreeSet<_> = entries.iter().map(token).collect();
        assert_eq!(skipped, 0, "none torn");
        assert_eq!(entries.len(), found.len(), "none twice");
        assert_eq!(found.len() as u64, WRITERS * EVENTS, "none lost");
        let sizes: Vec<_> = (1..)
            .map_while(|number| fs::metadata(scene.dir().join(format!("{FILE}.{number}"))).ok())
            .map(|file| file.len())
            .collect();
        assert_eq!(sizes.len() > 5, limit == LIMIT, "rotated as {limit} says");
        assert!(
            sizes.iter().all(|size| *size >= limit),
            "each file is rotated once, when it is full: {sizes:?}"
        );
    }
}

#[test]
fn of_rotated_files_so_many_are_kept_and_no_more() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile).rotating(1, 3);
    for token in 1..=9 {
        log.append(&acquired("deploy", "req_1", TEN, token))
            .unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(scene.dir())
        .unwrap()
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
        "audit.jsonl.3",
    ];
    assert_eq!(names, expected);
    assert_eq!(scene.tokens(), [6, 7, 8, 9], "the youngest, in order");
}

#[test]
fn a_torn_last_line_is_skipped_and_never_garbles_the_next_event() {
    for layout in [Layout::OneFile, Layout::PerRequest] {
        let scene = Scene::new();
        let log = scene.log(layout);
        let path = log.path_of(&acquired("deploy", "req_1", TEN, 1));
        log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
        let torn = acquired("deploy", "req_1", TEN, 2).line();
        add(&path, &torn[..torn.len() / 2]);
        let (entries, skipped) = scene.read(Filter::default());
        assert_eq!((entries.len(), skipped), (1, 1), "a reader bears it");
        log.append(&acquired("deploy", "req_1", TEN, 3)).unwrap();
        let (entries, skipped) = scene.read(Filter::default());
        assert_eq!(entries.iter().map(token).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(skipped, 1);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    }
}

#[test]
fn an_event_that_lacks_its_newline_alone_is_whole() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    let line = acquired("deploy", "req_1", TEN, 2).line();
    add(&scene.dir().join(FILE), line.trim_end());
    assert_eq!(scene.tokens(), [1, 2]);
    log.append(&acquired("deploy", "req_1", TEN, 3)).unwrap();
    assert_eq!(scene.tokens(), [1, 2, 3]);
}

#[test]
fn garbage_of_every_kind_is_skipped_and_counted() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    let path = scene.dir().join(FILE);
    let long = format!("{{\"event\":\"{}\"}}\n", "x".repeat(3 << 20));
    for garbage in [
        "nonsense\n",
        "[]\n",
        "{}\n",
        "{\"event\":1,\"timestamp\":\"2026-02-07T10:00:00Z\"}\n",
        "{\"event\":\"lock_acquired\",\"timestamp\":\"yesterday\"}\n",
        "\0\0\0\0\n",
        &long,
    ] {
        add(&path, garbage);
    }
    add(&path, "\n  \n");
    let nested = "[".repeat(100_000);
    add(&path, &format!("{nested}\n"));
    log.append(&acquired("deploy", "req_1", TEN, 2)).unwrap();
    let (entries, skipped) = scene.read(Filter::default());
    assert_eq!(entries.iter().map(token).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(skipped, 8, "blank lines are none");
}

#[test]
fn events_come_in_the_order_of_time_whatever_the_files() {
    let scene = Scene::new();
    let per_request = scene.log(Layout::PerRequest);
    let one_file = scene.log(Layout::OneFile).rotating(1, 9);
    for (log, id, at_ms, token) in [
        (&per_request, "req_b", TEN + DAY, 6),
        (&per_request, "req_b", TEN + 3, 3),
        (&per_request, "req_a", TEN + 5, 5),
        (&per_request, "req_a", TEN + DAY + 1, 7),
        (&one_file, "req_c", TEN, 1),
        (&one_file, "req_c", TEN + 2, 2),
        (&one_file, "req_c", TEN + 4, 4),
        (&one_file, "req_c", TEN + 2 * DAY, 8),
    ] {
        log.append(&acquired("deploy", id, at_ms, token)).unwrap();
    }
    assert_eq!(scene.tokens(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_filter_lets_through_what_it_names_and_nothing_else() {
    let scene = Scene::new();
    let log = scene.log(Layout::PerRequest);
    for record in [
        acquired("deploy", "req_1", TEN, 1),
        released("deploy", "req_1", TEN + 1_000),
        acquired("other", "req_2", TEN + DAY, 2),
        released("other", "req_2", TEN + DAY + 1_000),
    ] {
        log.append(&record).unwrap();
    }
    let count = |filter: Filter| scene.read(filter).0.len();
    assert_eq!(count(Filter::default()), 4);
    let filter = Filter {
        lock: Some("deploy".into()),
        ..Filter::default()
    };
    assert_eq!(count(filter), 2, "by lock");
    let filter = Filter {
        events: vec![EventName::LockReleased, EventName::LockStolen],
        ..Filter::default()
    };
    assert_eq!(count(filter), 2, "by event");
    let filter = Filter {
        request_id: Some("req_2".into()),
        ..Filter::default()
    };
    assert_eq!(count(filter), 2, "by request");
    let filter = Filter {
        since_ms: Some(TEN + 1_000),
        until_ms: Some(TEN + DAY),
        ..Filter::default()
    };
    assert_eq!(count(filter), 2, "by time, both ends included");
}

/// Numbers that look drawn and are the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const MEBIBYTE: u64 = 1 << 20;

/// Fills `audit.jsonl` to so many bytes: `line` makes the next line, and tenure writes each that reaches the end of a
/// mebibyte, as it does in life. The others are added at once, which takes less time.
fn fill(scene: &Scene, bytes: u64, mut line: impl FnMut(u64) -> Record) {
    let log = scene.log(Layout::OneFile).rotating(u64::MAX, 3);
    log.append(&line(0)).unwrap();
    let path = scene.dir().join(FILE);
    let mut size = fs::metadata(&path).unwrap().len();
    let (mut pending, mut number) = (String::new(), 1);
    while size < bytes {
        let record = line(number);
        let text = record.line();
        number += 1;
        let length = text.len() as u64;
        if size / MEBIBYTE == (size + length) / MEBIBYTE {
            size += length;
            pending += &text;
            continue;
        }
        add(&path, &std::mem::take(&mut pending));
        log.append(&record).unwrap();
        size = fs::metadata(&path).unwrap().len();
    }
    add(&path, &pending);
}

/// An event of so many bytes or a few more: few lines fill a file.
fn long(at_ms: u64, token: u64, bytes: u64) -> Record {
    let (lock, id) = (
        LockName::new("deploy").unwrap(),
        RequestId::new("req_1").unwrap(),
    );
    let occasion = Occasion::new(&lock, &id, at_ms);
    let path = "x".repeat(usize::try_from(bytes).unwrap());
    Record::lock_acquired(occasion, path.as_ref(), Duration::from_secs(9), token)
}

/// Whether a reader that asks for a time finds what a reader of everything finds.
struct Judge<'a> {
    scene: &'a Scene,
    all: Vec<Entry>,
}

impl<'a> Judge<'a> {
    fn of(scene: &'a Scene) -> Self {
        let all = scene.read(Filter::default()).0;
        Self { scene, all }
    }

    /// How many events there are of this time.
    fn asks(&self, since_ms: Option<u64>, until_ms: Option<u64>) -> usize {
        let filter = Filter {
            since_ms,
            until_ms,
            ..Filter::default()
        };
        let found = self.scene.read(filter).0;
        let is_of_then = |entry: &&Entry| {
            since_ms.is_none_or(|since| entry.at_ms() >= since)
                && until_ms.is_none_or(|until| entry.at_ms() <= until)
        };
        let expected: Vec<_> = self.all.iter().filter(is_of_then).collect();
        let times = format!("from {since_ms:?} to {until_ms:?}");
        assert_eq!(found.len(), expected.len(), "{times}");
        assert!(found.iter().eq(expected), "{times}");
        found.len()
    }
}

#[test]
fn a_day_is_read_without_the_year() {
    let scene = Scene::new();
    // An event an hour.
    fill(&scene, 6 * MEBIBYTE + MEBIBYTE / 2, |number| {
        long(TEN + number * DAY / 24, number, 2_000)
    });
    let judge = Judge::of(&scene);
    for day in [0, 1, 20, 60] {
        let since = TEN + day * DAY;
        let count = judge.asks(Some(since), Some(since + DAY - 1));
        assert_eq!(count, 24, "day {day}");
    }
    // What is passed over is not read: a reader says nothing of the garbage that stands there now.
    let path = scene.dir().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    for (place, byte) in (0..).zip(&mut bytes) {
        if *byte != b'\n' && (100_000..900_000).contains(&(place % MEBIBYTE)) {
            *byte = b'#';
        }
    }
    fs::write(&path, &bytes).unwrap();
    let (found, skipped) = scene.read(Filter {
        since_ms: Some(TEN + 10_000 * DAY),
        ..Filter::default()
    });
    assert_eq!(found, [], "nothing happened then");
    let last = bytes.get(6 << 20..).unwrap().split(|byte| *byte == b'\n');
    let garbage = last.filter(|line| line.contains(&b'#')).count() as u64;
    assert_eq!(skipped, garbage, "of the end alone, which no span covers");
    assert!(scene.read(Filter::default()).1 > 6 * garbage, "it is there");
}

#[test]
fn an_event_of_a_wrong_clock_is_found_by_its_time_wherever_it_stands() {
    let mut draw = Draw(1);
    for _ in 0..3 {
        let scene = Scene::new();
        let mut at_ms = TEN;
        fill(&scene, 3 * MEBIBYTE + draw.below(MEBIBYTE), |number| {
            at_ms += draw.below(10_000_000);
            let shown = match draw.below(200) {
                0 => draw.below(2 * TEN),
                1 => 0,
                2 => u64::MAX,
                // The clock is set back, and stays so.
                3 => {
                    at_ms -= draw.below(at_ms - TEN + 1);
                    at_ms
                }
                _ => at_ms,
            };
            long(shown, number, draw.below(8_000))
        });
        let judge = Judge::of(&scene);
        assert!(judge.all.len() > 600, "{}", judge.all.len());
        for _ in 0..3 {
            let since = draw.below(at_ms - TEN) + TEN;
            judge.asks(Some(since), Some(since + draw.below(DAY)));
            judge.asks(Some(since), None);
            judge.asks(None, Some(since));
        }
        assert!(judge.asks(Some(0), Some(0)) > 0, "the beginning of time");
        assert!(judge.asks(Some(99 * TEN), None) > 0, "and its end");
    }
}

#[test]
fn a_span_that_stands_elsewhere_than_it_says_is_not_believed() {
    let scene = Scene::new();
    fill(&scene, 3 * MEBIBYTE, |number| {
        long(TEN + number * DAY / 24, number, 2_000)
    });
    let path = scene.dir().join(FILE);
    let whole = fs::read_to_string(&path).unwrap();
    let spans = whole.lines().filter(|line| line.contains("\"span\":{"));
    assert_eq!(spans.count(), 3);
    let cut = whole.split_once('\n').unwrap().1.to_owned();
    let late = TEN + 9_999 * DAY;
    let before = long(late, 7, 10).line() + &whole;
    let behind = cut.clone() + &whole;
    for text in [&cut, &before, &behind] {
        fs::write(&path, text).unwrap();
        let judge = Judge::of(&scene);
        assert!(judge.asks(Some(TEN + DAY), Some(TEN + 2 * DAY)) >= 25);
        let is_there = usize::from(text == &before);
        assert_eq!(judge.asks(Some(late), Some(late)), is_there);
    }
}

#[test]
fn a_torn_line_at_the_end_of_a_span_hides_no_event() {
    let scene = Scene::new();
    fill(&scene, MEBIBYTE - 8_000, |number| {
        long(TEN + number, number, 2_000)
    });
    let path = scene.dir().join(FILE);
    let log = scene.log(Layout::OneFile);
    let before = fs::read(&path).unwrap();
    let room = usize::try_from(MEBIBYTE).unwrap() - before.len();
    let odd = TEN + 77 * DAY;
    // Up to the byte before the end of the mebibyte, to its end, and behind it.
    for length in room - 1..=room + 1 {
        fs::write(&path, &before).unwrap();
        add(&path, &"{".repeat(length));
        log.append(&long(odd, 8, 10)).unwrap();
        for number in 0..300 {
            log.append(&long(TEN + DAY, number, 4_000)).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() > 2 * MEBIBYTE);
        let judge = Judge::of(&scene);
        assert_eq!(judge.asks(Some(odd), Some(odd)), 1, "{length}");
        assert_eq!(judge.asks(Some(TEN), Some(TEN + 9)), 10, "{length}");
    }
}

#[test]
fn a_follower_of_a_time_passes_over_what_was_and_misses_nothing_new() {
    let scene = Scene::new();
    fill(&scene, 2 * MEBIBYTE + 10, |number| {
        long(TEN + number, number, 2_000)
    });
    let filter = Filter {
        since_ms: Some(TEN + DAY),
        ..Filter::default()
    };
    let mut follower = Events::open_to_follow(scene.dir(), filter)
        .unwrap()
        .follow();
    assert_eq!(follower.look().unwrap(), []);
    let log = scene.log(Layout::OneFile);
    for token in 0..600 {
        // Every second event is too old.
        let at_ms = TEN + DAY * (token % 2);
        log.append(&long(at_ms, token, 4_000)).unwrap();
        let seen = follower.look().unwrap();
        let seen: Vec<_> = seen.iter().map(self::token).collect();
        let expected: Vec<_> = Some(token).into_iter().filter(|it| it % 2 == 1).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn what_is_not_there_is_empty_and_stays_so() {
    let scene = Scene::new();
    assert_eq!(scene.tokens(), [] as [u64; 0]);
    assert!(!scene.dir().exists(), "a reader creates nothing");
}

#[cfg(unix)]
#[test]
fn a_place_that_cannot_be_trusted_is_refused() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    let record = acquired("deploy", "req_1", TEN, 1);
    log.append(&record).unwrap();
    let path = scene.dir().join(FILE);
    let elsewhere = scene.folder.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let refused = log.append(&record).unwrap_err();
    assert!(
        matches!(refused, AuditError::Unsafe { .. }),
        "a link: {refused}"
    );
    assert_eq!(
        fs::read_to_string(&elsewhere).unwrap().lines().count(),
        1,
        "nothing was written through it"
    );
    fs::rename(&elsewhere, &path).unwrap();
    fs::set_permissions(scene.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = log.append(&record).unwrap_err();
    assert!(matches!(refused, AuditError::Unsafe { .. }), "{refused}");
    assert!(Events::open(scene.dir(), Filter::default()).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_read_is_named_and_hides_no_other() {
    let scene = Scene::new();
    let log = scene.log(Layout::PerRequest);
    log.append(&acquired("deploy", "req_2", TEN, 2)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", scene.dir().join("2026-02-07/req_1.jsonl")).unwrap();
    std::os::unix::fs::symlink("/etc", scene.dir().join("2026-02-06")).unwrap();
    let mut events = Events::open(scene.dir(), Filter::default()).unwrap();
    assert_eq!(
        events
            .by_ref()
            .map(|entry| token(&entry))
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(events.problems().len(), 2, "{:?}", events.problems());
}

#[cfg(unix)]
#[test]
fn no_event_goes_to_a_file_that_was_removed_while_its_writer_waited() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    let path = scene.dir().join(FILE);
    let other = fs::File::open(&path).unwrap();
    let exclusive = rustix::fs::FlockOperation::LockExclusive;
    rustix::fs::flock(&other, exclusive).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| log.append(&acquired("deploy", "req_1", TEN, 2)).unwrap());
        // The log has the file open, and it is removed meanwhile.
        let is_open = || {
            let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let leads = |item: &fs::DirEntry| fs::read_link(item.path()).is_ok_and(|to| to == path);
            open.filter(leads).count() == 2
        };
        while !is_open() {
            std::thread::yield_now();
        }
        let gone = scene.folder.path().join("gone");
        fs::rename(&path, &gone).unwrap();
        drop(other);
        writer.join().unwrap();
        assert_eq!(fs::read_to_string(&gone).unwrap().lines().count(), 1);
    });
    assert_eq!(scene.tokens(), [2]);
}

/// As `logrotate` does without `copytruncate`.
#[test]
fn a_writer_follows_a_file_that_was_renamed_by_others() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    let path = scene.dir().join(FILE);
    fs::rename(&path, scene.dir().join("audit.jsonl.1")).unwrap();
    fs::write(&path, "").unwrap();
    log.append(&acquired("deploy", "req_1", TEN, 2)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    assert_eq!(scene.tokens(), [1, 2]);
}

#[test]
fn a_follower_sees_every_event_once_across_rotations_days_and_new_files() {
    let scene = Scene::new();
    let one_file = scene.log(Layout::OneFile).rotating(600, 3);
    let per_request = scene.log(Layout::PerRequest);
    let mut seen = Vec::new();
    let mut next = 0;
    let mut write = |log: &AuditLog, id: &str, day: u64| {
        next += 1;
        log.append(&acquired("deploy", id, TEN + day * DAY + next, next))
            .unwrap();
        next
    };
    write(&one_file, "req_1", 0);
    write(&per_request, "req_1", 0);
    let mut events = Events::open_to_follow(scene.dir(), Filter::default()).unwrap();
    seen.extend(events.by_ref().map(|entry| token(&entry)));
    let last = write(&one_file, "req_1", 0);
    let mut follower = events.follow();
    let mut look = |seen: &mut Vec<u64>| {
        seen.extend(follower.look().unwrap().iter().map(token));
    };
    look(&mut seen);
    assert_eq!(seen.len() as u64, last, "what came before the first look");
    for round in 0..40 {
        write(&one_file, "req_1", 0);
        if round % 3 == 0 {
            write(&per_request, &format!("req_{round}"), round / 10);
        }
        if round % 2 == 0 {
            look(&mut seen);
        }
    }
    look(&mut seen);
    look(&mut seen);
    assert!(scene.dir().join("audit.jsonl.3").exists(), "it was rotated");
    let count = seen.len();
    let found: BTreeSet<_> = seen.into_iter().collect();
    assert_eq!(count, found.len(), "none twice");
    assert_eq!(found.last().copied(), Some(count as u64), "none missing");
}

#[test]
fn a_follower_beside_many_writers_misses_and_repeats_nothing() {
    const WRITERS: u64 = 4;
    const EVENTS: u64 = 200;
    let scene = Scene::new();
    let mut follower = Events::open_to_follow(scene.dir(), Filter::default())
        .unwrap()
        .follow();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let one_file = scene.log(Layout::OneFile).rotating(4 << 10, 400);
                let per_request = scene.log(Layout::PerRequest);
                scope.spawn(move || {
                    for number in 0..EVENTS {
                        let number = writer * EVENTS + number;
                        let log = if number.is_multiple_of(4) {
                            &per_request
                        } else {
                            &one_file
                        };
                        log.append(&acquired("deploy", "req_1", TEN + number, number))
                            .unwrap();
                    }
                })
            })
            .collect();
        while !writers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            seen.extend(follower.look().unwrap().iter().map(token));
        }
    });
    seen.extend(follower.look().unwrap().iter().map(token));
    let count = seen.len();
    let found: BTreeSet<_> = seen.into_iter().collect();
    assert_eq!(count, found.len(), "none twice");
    assert_eq!(found.len() as u64, WRITERS * EVENTS, "none missing");
    assert_eq!(follower.skipped(), 0, "none torn");
    assert_eq!(follower.problems(), [] as [String; 0]);
}

#[test]
fn a_reader_beside_a_rotation_reads_whole_files_in_order() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile).rotating(2 << 10, 400);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..600 {
                log.append(&acquired("deploy", "req_1", TEN, number))
                    .unwrap();
            }
        });
        while !writer.is_finished() {
            let (entries, skipped) = scene.read(Filter::default());
            let tokens: Vec<_> = entries.iter().map(token).collect();
            let whole: Vec<_> = (0..tokens.len() as u64).collect();
            assert_eq!((tokens, skipped), (whole, 0), "no gap, nothing twice");
        }
    });
}

#[test]
fn a_follower_waits_for_the_end_of_a_line_and_never_shows_a_torn_one() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    let mut follower = Events::open_to_follow(scene.dir(), Filter::default())
        .unwrap()
        .follow();
    assert_eq!(follower.look().unwrap(), [], "there is no audit yet");
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    assert_eq!(follower.look().unwrap().len(), 1, "now there is");
    let path = scene.dir().join(FILE);
    let line = acquired("deploy", "req_1", TEN, 2).line();
    let (begin, end) = line.split_at(30);
    add(&path, begin);
    assert_eq!(follower.look().unwrap(), [], "half a line");
    add(&path, end);
    assert_eq!(follower.look().unwrap().len(), 1, "the whole line, once");
    add(&path, begin);
    assert_eq!(follower.look().unwrap(), [], "torn by a crash");
    log.append(&acquired("deploy", "req_1", TEN, 3)).unwrap();
    let entries = follower.look().unwrap();
    assert_eq!(entries.iter().map(token).collect::<Vec<_>>(), [3]);
    assert_eq!(follower.skipped(), 1);
}

/// As `logrotate` does with `copytruncate`.
#[test]
fn a_follower_goes_on_after_a_file_was_copied_and_cut() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    let path = scene.dir().join(FILE);
    for token in 1..=3 {
        log.append(&acquired("deploy", "req_1", TEN, token))
            .unwrap();
    }
    let mut follower = Events::open_to_follow(scene.dir(), Filter::default())
        .unwrap()
        .follow();
    assert_eq!(follower.look().unwrap().len(), 3);
    let copy = scene.dir().join("audit.jsonl.1");
    fs::copy(&path, &copy).unwrap();
    assert_eq!(follower.look().unwrap(), [], "the copy is nothing new");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    log.append(&acquired("deploy", "req_1", TEN, 4)).unwrap();
    let entries = follower.look().unwrap();
    assert_eq!(entries.iter().map(token).collect::<Vec<_>>(), [4]);
}

#[cfg(unix)]
#[test]
fn a_follower_is_woken_by_what_is_written() {
    let scene = Scene::new();
    let log = scene.log(Layout::PerRequest);
    log.append(&acquired("deploy", "req_1", TEN, 1)).unwrap();
    let mut follower = Events::open_to_follow(scene.dir(), Filter::default())
        .unwrap()
        .follow();
    assert_eq!(follower.look().unwrap().len(), 1);
    let (notices, _) = follower.notices();
    let is_woken = || {
        let mut fds = [rustix::event::PollFd::new(
            notices.as_ref().expect("this system tells"),
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    assert!(!is_woken(), "nothing happened");
    log.append(&acquired("deploy", "req_1", TEN, 2)).unwrap();
    assert!(is_woken(), "an event in a day's folder");
}

const NOTHING: [u64; 0] = [];

/// Reads what is new, each time as another process.
struct Visitor<'a> {
    scene: &'a Scene,
    bookmark: String,
}

impl<'a> Visitor<'a> {
    fn new(scene: &'a Scene) -> Self {
        let bookmark = "{\"series\":{},\"days\":{}}".to_owned();
        Self { scene, bookmark }
    }

    /// The tokens of the events since the last visit.
    fn news(&mut self) -> Vec<u64> {
        let bookmark = serde_json::from_str(&self.bookmark).unwrap();
        let mut events = Events::since(self.scene.dir(), bookmark).unwrap();
        let news: Vec<u64> = events.by_ref().map(|entry| token(&entry)).collect();
        let bookmark = events.bookmark().unwrap();
        self.bookmark = serde_json::to_string(&bookmark).unwrap();
        news
    }
}

fn append(log: &AuditLog, tokens: impl IntoIterator<Item = u64>) {
    for token in tokens {
        log.append(&acquired("deploy", "req_1", TEN + token, token))
            .unwrap();
    }
}

#[test]
fn a_later_process_reads_each_event_once_across_rotations() {
    let scene = Scene::new();
    // Two lines fill a file.
    let log = scene.log(Layout::OneFile).rotating(300, 3);
    let mut visitor = Visitor::new(&scene);
    assert_eq!(visitor.news(), NOTHING, "there is no audit yet");
    let mut next = 1;
    for count in [1, 2, 0, 1, 3, 5, 1, 0, 4] {
        append(&log, next..next + count);
        let written: Vec<_> = (next..next + count).collect();
        assert_eq!(visitor.news(), written);
        next += count;
    }
    assert!(scene.dir().join("audit.jsonl.3").exists());
    append(&log, next..next + 40);
    let news = visitor.news();
    assert_eq!(news.last(), Some(&(next + 39)), "what is left of them");
    assert!(news.is_sorted_by(|one, other| one < other) && news[0] > next);
    assert_eq!(visitor.news(), NOTHING);
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "a test takes away what others look for"
)]
fn a_later_process_knows_files_by_what_is_in_them() {
    let scene = Scene::new();
    let log = scene.log(Layout::OneFile);
    let path = |name: &str| scene.dir().join(name);
    let away = || scene.folder.path().join("away");
    let mut visitor = Visitor::new(&scene);
    append(&log, 1..=3);
    assert_eq!(visitor.news(), [1, 2, 3]);

    // copytruncate: the rest of the old lines is in the copy.
    append(&log, [4]);
    fs::copy(path("audit.jsonl"), path("audit.jsonl.1")).unwrap();
    fs::write(path("audit.jsonl"), "").unwrap();
    append(&log, [5]);
    assert_eq!(visitor.news(), [4, 5]);

    // An archive that comes back is older than what is known.
    fs::write(
        path("audit.jsonl.2"),
        acquired("deploy", "req_0", TEN, 0).line(),
    )
    .unwrap();
    append(&log, [6]);
    assert_eq!(visitor.news(), [6]);

    // Removed and begun anew, with more lines than before.
    fs::remove_file(path("audit.jsonl")).unwrap();
    append(&log, 7..=9);
    assert_eq!(visitor.news(), [7, 8, 9]);
    for name in ["audit.jsonl", "audit.jsonl.1"] {
        fs::remove_file(path(name)).unwrap();
    }
    assert_eq!(visitor.news(), NOTHING, "nothing of the archive");

    // An audit that is away for a while.
    append(&log, [10]);
    fs::rename(scene.dir(), away()).unwrap();
    assert_eq!(visitor.news(), NOTHING);
    fs::rename(away(), scene.dir()).unwrap();
    assert_eq!(visitor.news(), [10]);
    fs::rename(scene.dir(), away()).unwrap();
    assert_eq!(visitor.news(), NOTHING);
    fs::rename(away(), scene.dir()).unwrap();
    assert_eq!(visitor.news(), NOTHING);
}

#[test]
fn a_line_that_is_being_written_is_left_to_the_next_reader() {
    let scene = Scene::new();
    append(&scene.log(Layout::OneFile), [1]);
    let mut visitor = Visitor::new(&scene);
    let line = acquired("deploy", "req_1", TEN, 2).line();
    let (begin, end) = line.split_at(40);
    add(&scene.dir().join("audit.jsonl"), begin);
    assert_eq!(visitor.news(), [1]);
    add(&scene.dir().join("audit.jsonl"), end);
    assert_eq!(visitor.news(), [2]);
}

#[test]
fn a_later_process_reads_each_event_of_the_youngest_days_once() {
    let scene = Scene::new();
    let log = scene.log(Layout::PerRequest);
    let mut visitor = Visitor::new(&scene);
    let event = |id: &str, day: u64, number: u64| {
        let record = acquired("deploy", id, TEN + day * DAY, number);
        log.append(&record).unwrap();
    };
    event("req_1", 0, 1);
    event("req_1", 1, 2);
    assert_eq!(visitor.news(), [1, 2]);
    event("req_1", 1, 3);
    event("req_2", 0, 4);
    event("req_3", 5, 5);
    event("req_3", 6, 6);
    assert_eq!(visitor.news(), [4, 3, 5, 6]);
    event("req_1", 1, 7);
    event("req_3", 6, 8);
    assert_eq!(visitor.news(), [8], "a day that far back is read for good");
}
