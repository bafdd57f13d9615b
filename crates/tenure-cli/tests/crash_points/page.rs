//! What the crash points find, as the page `docs/internals/crash-matrix.md` says it: for each step that
//! others can notice, what is on disk if the program dies there, and which process goes on.
//!
//! Each test of a scenario has its section and compares it with what it has just seen;
//! `scripts/crash-matrix` has them written anew.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Set to a folder by `scripts/crash-matrix`, which makes the page of the sections in it.
const WRITE: &str = "TENURE_CRASH_MATRIX";

/// Between what was seen at different calls of one row.
const OR: &str = ", *or* ";

/// What was seen after one kill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Aftermath {
    pub(crate) disk: String,
    pub(crate) then: String,
}

/// The step that a line of a trace (`strace -y`) is, if others can notice it: a change of a file or
/// folder below `place`, a kernel lock, a new process.
fn step(shown: &str, place: &str) -> Option<String> {
    let (call, rest) = shown.split_once('(')?;
    if matches!(call, "clone" | "clone3" | "fork" | "vfork") {
        return Some("start the command".to_owned());
    }
    if !shown.contains(place) {
        return None;
    }
    let quoted: Vec<&str> = rest.split('"').skip(1).step_by(2).map(last).collect();
    let quoted = |index: usize| quoted.get(index).copied().unwrap_or_default();
    // The path behind the first descriptor.
    let file = rest
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    let file = file.map_or("", |(path, _)| last(path));
    match call {
        "mkdir" | "mkdirat" => Some(format!("make the folder {}", folder(quoted(0)))),
        "open" | "openat" if rest.contains("O_CREAT") => {
            Some(format!("open or make {}", name(quoted(0))))
        }
        "pwrite64" | "pwritev" | "write" => Some(format!("write {}", name(file))),
        "ftruncate" => Some(format!("cut {}", name(file))),
        "utimensat" => Some(format!("touch {}", name(file))),
        "unlinkat" | "unlink" => Some(format!("remove {}", name(quoted(0)))),
        "renameat" | "renameat2" | "rename" => {
            let verb = if rest.contains("RENAME_EXCHANGE") {
                "exchange"
            } else {
                "rename"
            };
            Some(format!("{verb} {} → {}", name(quoted(0)), name(quoted(1))))
        }
        "fcntl" => lock(rest),
        _ => None,
    }
}

/// Whether a call changes nothing that another process could notice, whatever it is given: the memory and
/// the signals of its own process alone, or nothing.
pub(crate) fn is_private(shown: &str) -> bool {
    const NAMES: [&str; 13] = [
        "brk",
        "getgid",
        "getpid",
        "gettid",
        "getuid",
        "geteuid",
        "mmap",
        "mprotect",
        "munmap",
        "rt_sigaction",
        "rt_sigprocmask",
        "sigaltstack",
        "sched_getaffinity",
    ];
    let name = shown.split('(').next().unwrap_or_default();
    // A debug build looks before it closes whether the descriptor is still its own.
    NAMES.contains(&name) || (name == "fcntl" && shown.contains("F_GETFD"))
}

/// Whether the call on a line of a trace (`strace -y`) changes nothing that outlasts the process: it is private, it looks at
/// files, kernel locks and processes, or it changes what the end of the process undoes anyway, as a timer, a descriptor or
/// a child that is not waited for. A death before such a call leaves what a death after it leaves. A call that is not known
/// to be so is not named here.
///
/// Kernel locks of the place are such calls, too; they are steps of the page, so each is tried.
pub(crate) fn is_unnoticed(shown: &str, place: &str) -> bool {
    let Some((call, rest)) = shown.split_once('(') else {
        return false;
    };
    let has = |word: &str| rest.contains(word);
    match call {
        "access" | "close" | "faccessat" | "faccessat2" | "fstat" | "fstatfs" | "getcwd"
        | "getdents64" | "getrandom" | "inotify_add_watch" | "inotify_init1"
        | "inotify_rm_watch" | "lseek" | "lstat" | "newfstatat" | "pread64" | "prctl" | "read"
        | "readlink" | "readlinkat" | "rt_sigreturn" | "stat" | "statfs" | "statx"
        | "timer_create" | "timer_delete" | "timer_settime" | "timerfd_create"
        | "timerfd_settime" | "uname" | "wait4" | "waitid" => true,
        // A lock of one line, in a file beside the place.
        "flock" => !has(place),
        // Whether there is such a process.
        "kill" => has(", 0) = "),
        // What does not wait looks.
        "ppoll" => has("{tv_sec=0, tv_nsec=0}"),
        "open" | "openat" => !["O_CREAT", "O_TRUNC"].into_iter().any(has),
        "fcntl" => ["F_GETFD", "F_SETFD", "F_GETFL", "F_DUPFD", "F_OFD_GETLK"]
            .into_iter()
            .any(has),
        "ioctl" => has("TIOCGWINSZ") || has("TCGETS"),
        _ => is_private(shown),
    }
}

/// For each line of a trace the step that comes next, that line included.
pub(crate) fn steps(trace: &str, place: &str) -> Vec<String> {
    let mut next = "end".to_owned();
    let mut steps: Vec<String> = Vec::new();
    for shown in trace.lines().rev() {
        next = step(shown, place).unwrap_or(next);
        steps.push(next.clone());
    }
    steps.reverse();
    steps
}

/// A change of a kernel lock. The bytes are those of `store/file/bytes.rs`.
fn lock(rest: &str) -> Option<String> {
    const GUARD: u64 = 1 << 60;
    const WITHIN_ANY: u64 = GUARD - 1;
    const TURNS: u64 = GUARD + (1 << 54);
    let start = rest.split_once("l_start=")?.1;
    let digits: String = start.chars().take_while(char::is_ascii_digit).collect();
    let byte: u64 = digits.parse().ok()?;
    let waits = rest.contains("F_OFD_SETLKW");
    if !waits && !rest.contains("F_OFD_SETLK") {
        return None;
    }
    let which = match byte {
        // Taken and let go together with the byte beside it, where that costs nothing.
        GUARD | WITHIN_ANY => "guard",
        ..TURNS => "liveness lock",
        _ => "turn",
    };
    Some(if rest.contains("F_UNLCK") {
        format!("release the {which}")
    } else if rest.contains("F_RDLCK") {
        format!("sleep on a {which}")
    } else {
        format!("take the {which}")
    })
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn name(file: &str) -> String {
    format!("`{}`", dated(file))
}

fn folder(name: &str) -> String {
    format!("`{}/`", dated(name))
}

/// A day is the same as any other, and so is the file of a request whose id was drawn.
fn dated(name: &str) -> &str {
    let is_day = name.len() == 10 && name.bytes().filter(|byte| *byte == b'-').count() == 2;
    let is_drawn = name.len() == "req_.jsonl".len() + 32 && name.starts_with("req_");
    match (is_day, is_drawn) {
        (true, _) => "DATE",
        (_, true) => "REQUEST.jsonl",
        (false, false) => name,
    }
}

/// The tickets in a coordination file.
pub(crate) fn tickets(file: &Path) -> BTreeSet<u64> {
    claims(file)
        .unwrap_or_default()
        .iter()
        .filter_map(|claim| claim["ticket"].as_u64())
        .collect()
}

/// A coordination file in words. `known` are the tickets of those who were there before.
pub(crate) fn list(file: &Path, known: &BTreeSet<u64>) -> String {
    match std::fs::read(file) {
        Err(_) => return "no file".to_owned(),
        // Before its first state a page may have room that was written with nothing in it.
        Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => return "an empty file".to_owned(),
        Ok(_) => {}
    }
    let Some(claims) = claims(file) else {
        return "a file that cannot be read".to_owned();
    };
    let (mut before, mut ours) = (Vec::new(), Vec::new());
    for claim in &claims {
        let is_known = claim["ticket"]
            .as_u64()
            .is_some_and(|it| known.contains(&it));
        let state = match (claim["token"].is_u64(), claim["away"].is_object()) {
            (true, _) if claim["command_pid"].is_u64() => "holds, its command named",
            (true, _) => "holds",
            (false, true) => "reserves its place",
            (false, false) => "waits",
        };
        let asked = if claim["cancel"].is_object() {
            " and is asked to stop"
        } else {
            ""
        };
        let who = if is_known { &mut before } else { &mut ours };
        who.push(format!("{state}{asked}"));
    }
    let mut words = Vec::new();
    for (whose, who) in [("the one before", before), ("ours", ours)] {
        for alike in who.chunk_by(|one, next| one == next) {
            let state = alike.first().map_or("", String::as_str);
            // A crowd is told in one word.
            if alike.len() > 2 {
                words.push(format!("{} times: {whose} {state}", alike.len()));
            } else {
                words.extend(alike.iter().map(|state| format!("{whose} {state}")));
            }
        }
    }
    if words.is_empty() {
        "an empty list".to_owned()
    } else {
        words.join("; ")
    }
}

/// The claims of the slot that counts.
fn claims(file: &Path) -> Option<Vec<Value>> {
    let bytes = std::fs::read(file).ok()?;
    let mut best: Option<(u64, &[u8])> = None;
    for pair in 0..8 {
        for second in 0..2 {
            let size = 2048 << pair;
            let start = 4096 * ((1 << pair) - 1) + second * size;
            let slot = bytes
                .get(start..bytes.len().min(start + size))
                .unwrap_or_default();
            let Some((sequence, body)) = slot_of(slot) else {
                continue;
            };
            if best.is_none_or(|(other, _)| other < sequence) {
                best = Some((sequence, body));
            }
        }
    }
    let text = std::str::from_utf8(&whole(best?.1, &bytes)?)
        .ok()?
        .to_owned();
    let lines = text.lines().skip(1).map(serde_json::from_str);
    lines.collect::<Result<_, _>>().ok()
}

/// The list of a page: a long one names segments that belong into it.
fn whole(page: &[u8], file: &[u8]) -> Option<Vec<u8>> {
    if !page.starts_with(b"{\"segments\":") {
        return Some(page.to_vec());
    }
    let end = page.iter().position(|byte| *byte == b'\n')?;
    let named: Value = serde_json::from_slice(page.get(..end)?).ok()?;
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let (front, back) = page
        .get(end + 1..)?
        .split_at_checked(number(&named["at"])?)?;
    let mut list = front.to_vec();
    for segment in named["segments"].as_array()? {
        let start = 258_048 + 8_192 * number(&segment[0])?;
        list.extend_from_slice(file.get(start..start + number(&segment[1])?)?);
    }
    list.extend_from_slice(back);
    Some(list)
}

fn slot_of(slot: &[u8]) -> Option<(u64, &[u8])> {
    let end = slot.iter().position(|byte| *byte == b'\n')?;
    let frame = std::str::from_utf8(slot.get(..end)?).ok()?;
    let mut words = frame.strip_prefix("tenure 1 ")?.split(' ');
    let sequence = words.next()?.parse().ok()?;
    let length: usize = words.next()?.parse().ok()?;
    Some((sequence, slot.get(end + 1..)?.get(..length)?))
}

/// Whether the page is to be written, and not compared.
pub(crate) fn is_written() -> bool {
    std::env::var_os(WRITE).is_some()
}

/// Whether what was seen after kills, in the order of the trace and each with the step that it came
/// before, is what the page says. A page that is to be written agrees.
pub(crate) fn agrees(name: &str, seen: &[(String, Aftermath)]) -> bool {
    is_written() || differences_to_page(&page(), name, seen).is_empty()
}

/// Fails unless [`agrees`], or writes the section.
pub(crate) fn agree(name: &str, seen: &[(String, Aftermath)]) {
    let section = section(name, seen);
    if let Some(folder) = std::env::var_os(WRITE) {
        let file = name.replace(' ', "-");
        std::fs::write(PathBuf::from(folder).join(file), section).expect("a section");
        return;
    }
    let page = page();
    let differences = differences_to_page(&page, name, seen);
    assert!(
        differences.is_empty(),
        "docs/internals/crash-matrix.md no longer says what happens to {name:?}; look at the difference, and \
         have the page written by scripts/crash-matrix if it is right.\n{}\nfound:\n{section}\non \
         the page:\n{}",
        differences.join("\n"),
        committed(&page, name).unwrap_or_default()
    );
}

fn differences_to_page(page: &str, name: &str, seen: &[(String, Aftermath)]) -> Vec<String> {
    let in_place = !["run", "behind"].iter().any(|word| name.contains(word));
    differences(
        &rows(committed(page, name).unwrap_or_default()),
        seen,
        in_place,
    )
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/crash-matrix.md");
    std::fs::read_to_string(page).expect("docs/internals/crash-matrix.md")
}

/// A row of the page: its steps, what may be on disk, who may go on.
type Row<'a> = [BTreeSet<&'a str>; 3];

fn rows(section: &str) -> Vec<Row<'_>> {
    let lines = section.lines().skip_while(|line| !line.starts_with("|---"));
    lines
        .skip(1)
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let mut cell = |separator| Some(cells.next()?.split(separator).collect());
            Some([cell(" · ")?, cell(OR)?, cell(OR)?])
        })
        .collect()
}

/// What the page and a run do not agree on: steps, states and successors that only one of them knows,
/// and, where `in_place`, a state that is not seen at its own step.
///
/// A process that waits, is woken or interrupted makes a call more or less than it did under the trace,
/// and is then struck a call earlier or later than was meant. For such processes the page need not say
/// which step a state belongs to, and its rows join what was seen.
fn differences(rows: &[Row<'_>], seen: &[(String, Aftermath)], in_place: bool) -> Vec<String> {
    let mut found = Vec::new();
    let on_page = |column: usize, what: &str| rows.iter().any(|row| row[column].contains(what));
    for (step, after) in seen {
        for (column, what) in [(0, step), (1, &after.disk), (2, &after.then)] {
            if !on_page(column, what) {
                found.push(format!("not on the page: {what}"));
            }
        }
    }
    for [steps, disk, _] in rows {
        for step in steps {
            let mut at_step = seen.iter().filter(|(at, _)| at == step).peekable();
            if at_step.peek().is_none() {
                found.push(format!("not seen: {step}"));
            } else if in_place && !at_step.any(|(_, after)| disk.contains(after.disk.as_str())) {
                found.push(format!("not seen before {step}: {disk:?}"));
            }
        }
    }
    // Of a row that joins several, each is a matter of timing. Where a claim waits, so is any that lasts
    // for an instant only. Most of them are seen all the same, or the page is of another program.
    let single = rows.iter().filter(|[_, disk, _]| disk.len() == 1);
    let single: BTreeSet<&str> = single.flat_map(|[_, disk, _]| disk).copied().collect();
    let is_seen = |state: &&&str| seen.iter().any(|(_, after)| after.disk == ***state);
    let missing: Vec<&str> = single
        .iter()
        .filter(|state| !is_seen(state))
        .copied()
        .collect();
    if in_place || missing.len() * 3 > single.len() {
        let missing = missing.iter();
        found.extend(missing.map(|state| format!("not seen: {state}")));
    }
    found.sort();
    found.dedup();
    found
}

/// The section of a name on the page.
fn committed<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let title = format!("### {name}\n");
    let start = page.find(&title)?;
    let rest = page.get(start..)?;
    let end = rest.get(1..)?.find("\n## ").into_iter();
    let end = end.chain(rest.get(1..)?.find("\n### ")).min();
    Some(
        rest.get(..end.map_or(rest.len(), |end| end + 1))?
            .trim_end(),
    )
}

fn section(name: &str, seen: &[(String, Aftermath)]) -> String {
    // Kills between two steps show the same as the one at the second.
    let mut steps: Vec<(&str, BTreeSet<&Aftermath>)> = Vec::new();
    for (step, aftermath) in seen {
        match steps.last_mut() {
            Some((last, found)) if last == step => {
                found.insert(aftermath);
            }
            _ => steps.push((step, BTreeSet::from([aftermath]))),
        }
    }
    let mut rows: Vec<(Vec<&str>, BTreeSet<&Aftermath>)> = Vec::new();
    for (step, found) in steps {
        match rows.last_mut() {
            Some((steps, same)) if *same == found => steps.push(step),
            _ => rows.push((vec![step], found)),
        }
    }
    let mut text = format!(
        "### {name}\n\n| killed before it could | what is on disk | who goes on |\n|---|---|---|\n"
    );
    for (steps, found) in rows {
        let all = |of: fn(&Aftermath) -> &str| -> String {
            let all: BTreeSet<&str> = found.iter().map(|found| of(found)).collect();
            all.into_iter().collect::<Vec<_>>().join(OR)
        };
        let disk = all(|found| &found.disk);
        let then = all(|found| &found.then);
        let _ = writeln!(text, "| {} | {disk} | {then} |", steps.join(" · "));
    }
    text
}

/// Every section whose title begins so is that of a transition which is tried.
pub(crate) fn all_are_tried(begins: &[&str], names: &[&str]) {
    if is_written() {
        return;
    }
    let page = page();
    for title in page.lines().filter_map(|line| line.strip_prefix("### ")) {
        let is_mine = begins.iter().any(|begin| title.starts_with(begin));
        assert!(
            !is_mine || names.contains(&title),
            "the page has a section {title:?}, and nothing of that name is tried"
        );
    }
    for name in names {
        assert!(
            committed(&page, name).is_some(),
            "{name:?} is not on the page"
        );
    }
}

mod crash_points {
    use super::*;

    #[test]
    fn a_call_whose_effect_outlasts_the_process_is_noticed() {
        for (shown, unnoticed) in [
            (
                "openat(5</x>, \"a\", O_RDWR|O_CLOEXEC) = 7</x/locks/a>",
                true,
            ),
            (
                "openat(5</x>, \"a\", O_RDWR|O_CREAT, 0600) = 7</x/locks/a>",
                false,
            ),
            ("pread64(6</x/locks/a>, \"\", 4096, 0) = 0", true),
            ("pwrite64(6</x/locks/a>, \"\", 2048, 0) = 2048", false),
            ("fcntl(8</x/locks/a>, F_OFD_GETLK, {}) = 0", true),
            ("fcntl(8</x/locks/a>, F_OFD_SETLK, {}) = 0", false),
            ("close(7</proc/1/stat>) = 0", true),
            ("close(7</x/locks/a>) = 0", true),
            ("close(7<pipe:[1]>) = 0", true),
            (
                "waitid(P_PID, 7, {}, WNOHANG|WEXITED|WNOWAIT, NULL) = 0",
                true,
            ),
            ("waitid(P_PID, 7, {}, WNOHANG|WEXITED, NULL) = 0", true),
            ("flock(7</x/audit/a>, LOCK_EX|LOCK_NB) = 0", true),
            ("flock(7</x/locks/a>, LOCK_EX|LOCK_NB) = 0", false),
            ("kill(7, 0) = 0", true),
            ("kill(7, SIGTERM) = 0", false),
            ("timer_settime(0, 0, {}, NULL) = 0", true),
            ("write(2<pipe:[1]>, \"\", 1) = 1", false),
            (
                "ppoll([{fd=2}], 1, {tv_sec=0, tv_nsec=0}, NULL, 8) = 1",
                true,
            ),
            ("unlinkat(5</x/locks>, \"a\", 0) = 0", false),
            ("clone3({flags=CLONE_VFORK}, 88) = 7", false),
            ("ppoll([{fd=3}], 1, NULL, NULL, 8) = 1", false),
            ("brk(NULL) = 0x1", true),
            ("exit_group(0) = ?", false),
        ] {
            assert_eq!(is_unnoticed(shown, "/locks"), unnoticed, "{shown}");
        }
    }

    /// The page can be wrong in each of these ways, and each is noticed.
    #[test]
    fn a_page_that_says_something_else_is_noticed() {
        let seen = |step: &str, disk: &str| {
            let after = Aftermath {
                disk: disk.to_owned(),
                then: "the next caller".to_owned(),
            };
            (step.to_owned(), after)
        };
        let run = [seen("write `a`", "no file"), seen("end", "ours holds")];
        let section = section("x", &run);
        assert_eq!(differences(&rows(&section), &run, true), [""; 0]);
        let wrong = [
            section.replace("no file", "an empty file"),
            section.replace("write `a`", "write `b`"),
            section.replace("the next caller", "no caller"),
            section.lines().take(5).collect::<Vec<_>>().join("\n"),
            format!("{section}| cut `a` | no file | the next caller |\n"),
        ];
        for page in wrong {
            assert_ne!(differences(&rows(&page), &run, false), [""; 0], "{page}");
        }
        let swapped = section
            .replace("ours holds", "SWAP")
            .replace("no file", "ours holds")
            .replace("SWAP", "no file");
        assert_ne!(
            differences(&rows(&swapped), &run, true),
            [""; 0],
            "{swapped}"
        );
    }
}
