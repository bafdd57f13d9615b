//! What is remembered of a session: answers, so that a call that is asked about twice gets one answer, whether
//! rewrites arrive, and which paths were leased.
//!
//! Each session has a private file in the user's state folder: hooks run outside of the sandboxes in which agents run
//! their commands. The file is lines of JSON, appended by one write each. Its size is bounded, and what is older than
//! a day goes. **It is a memory and no state:** a line that is lost makes an answer that is found again, so every
//! fault here is passed over.
//!
//! A file that is too long loses its oldest answers. What counts for the whole session stays: its leases, whose places
//! its end has to find, and that rewrites do not arrive. A hook that appends while another one shortens may write into
//! the file that is replaced. Its line is lost then, as above; a lock between the two would keep calls waiting.
//!
//! A call to tenure's own server has a file of its own while it is under way (`of_call`): that server is told the call,
//! and not the agent.

use super::leases::Leased;
use serde_json::{Value, json};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_core::AgentKey;
use tenure_engine::config::agents_folder;
use tenure_os::{os, private, regular};

/// The longest file; it is cut to its later half then.
const FILE_MAX: u64 = 256 << 10;

/// How many leases are kept of the lines that go.
const LEASES_MAX: usize = 200;

/// The longest line.
const LINE_MAX: usize = 16 << 10;

/// How long an answer counts. A host asks twice at once, and never later again.
const ANSWER_AGE: Duration = Duration::from_secs(600);

/// How long a file is kept after its last line.
const FILE_AGE: Duration = Duration::from_secs(24 * 3_600);

/// How many files are looked at when old ones are removed.
const LOOKS_MAX: usize = 1_000;

/// The memory of one session.
#[derive(Debug)]
pub(super) struct Memory {
    file: PathBuf,
    now_ms: u64,
}

/// What is remembered of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    /// What the call asked for.
    asks: String,
    /// What was answered.
    text: String,
    /// The host may still be asking a second time.
    is_fresh: bool,
    /// What the end of the call proves.
    pub(super) proves: Option<Proof>,
}

/// A rewrite that has run, if its call succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proof {
    /// The text as it was before.
    pub(super) asked: String,
    /// The agent in whose name it runs.
    pub(super) by: AgentKey,
    /// The lock, and the folder from which it is found.
    pub(super) under: String,
    pub(super) folder: PathBuf,
    /// The instant of the answer.
    pub(super) at_ms: u64,
    /// A command of that agent has begun under `tenure run` since.
    pub(super) is_marked: bool,
}

impl Memory {
    /// Of a session; `None` where there is no state folder.
    pub(super) fn of(key: &AgentKey, now_ms: u64) -> Option<Self> {
        let name = format!("{}-{}.jsonl", key.host(), key.session());
        Some(Self {
            file: agents_folder().ok()?.join(name),
            now_ms,
        })
    }

    /// What was answered to this call.
    pub(super) fn answered(&self, id: &str) -> Option<Remembered> {
        if id.is_empty() {
            return None;
        }
        let lines = self.lines();
        let of_call = |line: &Value| line.get("call").and_then(Value::as_str) == Some(id);
        let place = lines.iter().rposition(of_call)?;
        let (line, later) = lines.get(place..)?.split_first()?;
        let at_ms = line.get("at")?.as_u64()?;
        let age = Duration::from_millis(self.now_ms.saturating_sub(at_ms));
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let proof = || {
            let by: AgentKey = text("by")?.parse().ok()?;
            let has_run = |line: &Value| line.get("ran").and_then(Value::as_str) == text("by");
            Some(Proof {
                asked: text("asked")?.to_owned(),
                under: text("under")?.to_owned(),
                folder: text("in")?.into(),
                // The order of the lines is that of what happened; a clock may be set back.
                is_marked: later.iter().any(has_run),
                at_ms,
                by,
            })
        };
        let proves = proof();
        let is_fresh = age < ANSWER_AGE;
        (is_fresh || proves.is_some()).then(|| Remembered {
            asks: text("asks").unwrap_or_default().to_owned(),
            text: text("text").unwrap_or_default().to_owned(),
            is_fresh,
            proves,
        })
    }

    /// What was answered a moment ago to a call with this name that asked for just this.
    pub(super) fn said(&self, id: &str, asks: &str) -> Option<String> {
        let before = self.answered(id)?;
        (before.asks == asks && before.is_fresh).then_some(before.text)
    }

    /// Remembers an answer. `asks` tells what the call asked for from all else. `proves` says that the call is certain
    /// to leave a mark if it arrives as it was rewritten, and succeeds.
    pub(super) fn answer(&self, id: &str, asks: &str, text: &str, proves: Option<&Proof>) {
        if id.is_empty() {
            return;
        }
        let mut line = json!({"at": self.now_ms, "call": id, "asks": asks, "text": text});
        if let Some(proof) = proves {
            line["asked"] = proof.asked.as_str().into();
            line["by"] = proof.by.to_string().into();
            line["under"] = proof.under.as_str().into();
            line["in"] = proof.folder.to_string_lossy().into();
        }
        self.append(&line);
    }

    /// Notes that a command began under `tenure run` in an agent's name. Nothing is noted where no hook has been
    /// asked, or where the command may not write here: then nothing is concluded, or too little.
    pub(super) fn ran(&self, key: &AgentKey) {
        let mut options = OpenOptions::new();
        if let Ok(mut file) = regular::open(&self.file, options.append(true)) {
            let line = json!({"at": self.now_ms, "ran": key.to_string()});
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Whether rewrites are known not to arrive.
    pub(super) fn is_unheeded(&self) -> bool {
        self.lines().iter().any(is_of_unheeded)
    }

    /// Remembers that a rewrite did not arrive.
    pub(super) fn unheeded(&self) {
        self.append(&json!({"at": self.now_ms, "unheeded": true}));
    }

    /// The leases that the agents which the key covers have taken, as far as they did not end by their own doing.
    pub(super) fn leased(&self, key: &AgentKey) -> Vec<Leased> {
        let own = self.leased_by(key).into_iter();
        own.map(|(_, lease)| lease).collect()
    }

    /// Forgets the leases that have ended, and keeps the others with their agents.
    pub(super) fn keep(&self, key: &AgentKey, is_held: impl Fn(&Leased) -> bool) {
        let leased = self.leased_by(key);
        self.freed(key);
        for (agent, lease) in leased.iter().filter(|(_, lease)| is_held(lease)) {
            self.lease(agent, lease);
        }
    }

    fn leased_by(&self, key: &AgentKey) -> Vec<(AgentKey, Leased)> {
        let mut leased = leases_of(&self.lines());
        leased.retain(|(agent, _)| key.covers(agent));
        leased
    }

    /// Remembers a lease.
    pub(super) fn lease(&self, key: &AgentKey, lease: &Leased) {
        self.append(&self.line_of(key, lease));
    }

    fn line_of(&self, key: &AgentKey, lease: &Leased) -> Value {
        json!({
            "at": self.now_ms,
            "agent": key.to_string(),
            "lock": lease.lock,
            "path": lease.path,
            "place": lease.place,
        })
    }

    /// Remembers that the leases of an agent or a session have ended, or were told as lost.
    pub(super) fn freed(&self, key: &AgentKey) {
        self.append(&json!({"at": self.now_ms, "freed": key.to_string()}));
    }

    /// Removes what is left of sessions that have been silent for a day.
    pub(super) fn forget_old(&self) {
        let Some(entries) = self.file.parent().and_then(|folder| folder.read_dir().ok()) else {
            return;
        };
        for entry in entries.take(LOOKS_MAX).flatten() {
            let written = entry.metadata().and_then(|facts| facts.modified()).ok();
            let written = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let age = written.map(|at| Duration::from_millis(self.now_ms).saturating_sub(at));
            let is_ours = entry.path().extension().is_some_and(|end| end == "jsonl");
            if is_ours && age.is_some_and(|age| age > FILE_AGE) {
                let _ = rustix::fs::unlink(entry.path());
            }
        }
    }

    fn lines(&self) -> Vec<Value> {
        let Ok(file) = regular::open(&self.file, OpenOptions::new().read(true)) else {
            return Vec::new();
        };
        let mut text = String::new();
        // What is too long was not written by this.
        if file.take(4 * FILE_MAX).read_to_string(&mut text).is_err() {
            return Vec::new();
        }
        let lines = text.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn append(&self, line: &Value) {
        let mut line = line.to_string();
        line.push('\n');
        if line.len() > LINE_MAX {
            return;
        }
        let Some(folder) = self.file.parent() else {
            return;
        };
        let Ok(mut file) = open(&self.file, OpenOptions::new().append(true)) else {
            return;
        };
        let _ = file.write_all(line.as_bytes());
        if file.metadata().is_ok_and(|facts| facts.len() > FILE_MAX) {
            self.shorten(folder);
        }
    }

    /// Leaves the later half of the lines, and before them what counts of the others: the leases that had not ended by
    /// then, the latest of them if they are too many, and that rewrites do not arrive.
    fn shorten(&self, folder: &Path) {
        let lines = self.lines();
        let (early, later) = lines.split_at(lines.len() / 2);
        let unheeded = early.iter().filter(|line| is_of_unheeded(line)).take(1);
        let mut kept: Vec<String> = unheeded.map(Value::to_string).collect();
        let leases = leases_of(early);
        let leases = leases.iter().rev().take(LEASES_MAX).rev();
        kept.extend(leases.map(|(agent, lease)| self.line_of(agent, lease).to_string()));
        kept.extend(later.iter().map(Value::to_string));
        let mut text = String::new();
        for line in &kept {
            text.push_str(line);
            text.push('\n');
        }
        // What is left of it after a kill is removed like the file of a session (`forget_old`).
        let new = format!(".{}.new.jsonl", std::process::id());
        let name = self.file.file_name().and_then(|name| name.to_str());
        if let (Ok(folder), Some(name)) = (os::open_folder(folder), name) {
            let _ = private::replace(&folder, (&new, name), text.as_bytes(), |_| Ok(()));
        }
    }
}

/// Notes the agent of a call to tenure's server, of which the host tells the server nothing but the call; or that the
/// call is over. The note is a file of its own: the server knows no session.
pub(super) fn of_call(id: &str, agent: Option<&AgentKey>) {
    let Some(file) = file_of_call(id) else { return };
    let Some(agent) = agent else {
        let _ = rustix::fs::unlink(&file);
        return;
    };
    note(&file, &agent.to_string());
}

/// Opens a private file, and makes it and its folder where they are not there.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.create(true).mode(0o600);
    match regular::open(path, options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut folder = DirBuilder::new();
            folder.recursive(true).mode(0o700);
            folder.create(path.parent().unwrap_or(path))?;
            regular::open(path, options)
        }
        other => other,
    }
}

/// Writes a file that has a single text. Without it, less is known.
pub(super) fn note(file: &Path, text: &str) {
    let opened = open(file, OpenOptions::new().write(true).truncate(true));
    let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
}

/// The agent of a call that is under way, where its host's hook was told of it.
#[cfg(feature = "mcp")]
pub(in crate::command) fn agent_of_call(id: &str) -> Option<AgentKey> {
    let noted = regular::bytes(&file_of_call(id)?, LINE_MAX as u64).ok()?;
    String::from_utf8(noted).ok()?.parse().ok()
}

fn file_of_call(id: &str) -> Option<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if id.is_empty() || id.len() > 128 || !id.chars().all(is_plain) {
        return None;
    }
    Some(agents_folder().ok()?.join(format!("call-{id}.jsonl")))
}

fn is_of_unheeded(line: &Value) -> bool {
    line.get("unheeded").is_some()
}

/// The leases that these lines tell of, each with its agent, as far as the lines do not say that they have ended.
fn leases_of(lines: &[Value]) -> Vec<(AgentKey, Leased)> {
    let mut leased: Vec<(AgentKey, Leased)> = Vec::new();
    for line in lines {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let of = |key: &str| text(key).and_then(|key| key.parse::<AgentKey>().ok());
        if let Some(freed) = of("freed") {
            leased.retain(|(agent, _)| !freed.covers(agent));
        } else if let (Some(agent), Some(lock)) = (of("agent"), text("lock")) {
            let lease = Leased {
                lock: lock.to_owned(),
                path: text("path").unwrap_or_default().to_owned(),
                place: text("place").unwrap_or_default().to_owned(),
            };
            leased.retain(|(_, known)| known.lock != lease.lock);
            leased.push((agent, lease));
        }
    }
    leased
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(folder: &Path, now_ms: u64) -> Memory {
        Memory {
            file: folder.join("agents/claude-s.jsonl"),
            now_ms,
        }
    }

    #[test]
    fn an_answer_counts_for_ten_minutes() {
        let folder = tempfile::tempdir().expect("a folder");
        let begin = memory(folder.path(), 1_000);
        assert_eq!(begin.answered("t"), None);
        begin.answer("t", "make", "one", None);
        begin.answer("", "make", "none", None);
        let of_one = |memory: &Memory| memory.said("t", "make");
        assert_eq!(begin.said("t", "edit"), None, "another call of this name");
        assert_eq!(of_one(&begin).as_deref(), Some("one"));
        assert_eq!(begin.answered("other"), None);
        assert_eq!(begin.answered(""), None);
        let later = memory(folder.path(), 1_000 + 600_000);
        assert_eq!(of_one(&later), None);
        // The clock is set back between an answer and its mark.
        let key: AgentKey = "claude/s/a".parse().expect("a key");
        let proof = |memory: &Memory| memory.answered("u").and_then(|found| found.proves);
        let expected = Proof {
            asked: "make".to_owned(),
            by: key.clone(),
            under: "b".to_owned(),
            folder: "/w".into(),
            at_ms: 601_000,
            is_marked: false,
        };
        later.answer("u", "make", "two", Some(&expected));
        assert_eq!(proof(&later), Some(expected.clone()));
        begin.ran(&"claude/s".parse().expect("a key"));
        assert_eq!(proof(&begin), Some(expected.clone()), "a sibling's mark");
        begin.ran(&key);
        let marked = Proof {
            is_marked: true,
            ..expected
        };
        assert_eq!(proof(&memory(folder.path(), 9_000_000)), Some(marked));
    }

    #[test]
    fn a_memory_is_private_and_bounded() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let memory = memory(folder.path(), 1);
        let text = "x".repeat(4_000);
        for number in 0..300 {
            memory.answer(&format!("t{number}"), "", &text, None);
        }
        let facts = std::fs::metadata(&memory.file).expect("a file");
        assert!(facts.len() < FILE_MAX + 8_000, "{}", facts.len());
        assert_eq!(facts.mode() & 0o777, 0o600);
        assert!(memory.answered("t299").is_some() && memory.answered("t0").is_none());
        memory.answer("long", "", &"x".repeat(LINE_MAX), None);
        assert_eq!(memory.answered("long"), None);
        let left = std::fs::read_dir(folder.path().join("agents")).expect("a folder");
        assert_eq!(left.count(), 1, "no other file is left");
    }

    #[test]
    fn a_memory_that_is_shortened_keeps_leases_and_that_rewrites_do_not_arrive() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = memory(folder.path(), 1);
        let key = |text: &str| text.parse::<AgentKey>().expect("a key");
        let lease = |lock: &str| Leased {
            lock: lock.to_owned(),
            path: lock.to_owned(),
            place: "/elsewhere".to_owned(),
        };
        memory.unheeded();
        memory.lease(&key("claude/s/a"), &lease("ended"));
        memory.lease(&key("claude/s/b"), &lease("kept"));
        memory.freed(&key("claude/s/a"));
        let text = "x".repeat(4_000);
        for number in 0..300 {
            memory.answer(&format!("t{number}"), "", &text, None);
        }
        assert_eq!(memory.answered("t0"), None, "it was shortened");
        assert_eq!(memory.leased(&key("claude/s")), [lease("kept")]);
        assert!(memory.is_unheeded());
        // What ends a lease later on counts, and very many leases do not make the file too long.
        memory.freed(&key("claude/s/b"));
        assert_eq!(memory.leased(&key("claude/s")), []);
        for number in 0..4_000 {
            memory.lease(&key("claude/s"), &lease(&format!("l{number}")));
        }
        let facts = std::fs::metadata(&memory.file).expect("a file");
        assert!(facts.len() < FILE_MAX + 8_000, "{}", facts.len());
        let leased = memory.leased(&key("claude/s"));
        assert_eq!(leased.last(), Some(&lease("l3999")));
    }

    #[test]
    fn what_a_killed_hook_left_beside_the_memory_goes_with_old_memories() {
        let folder = tempfile::tempdir().expect("a folder");
        // A day after all that is written here.
        let now_ms = crate::command::hook::now_ms();
        memory(folder.path(), now_ms).unheeded();
        let agents = folder.path().join("agents");
        std::fs::write(agents.join(".7.new.jsonl"), "").expect("a file");
        let count = || std::fs::read_dir(&agents).expect("a folder").count();
        memory(folder.path(), now_ms).forget_old();
        assert_eq!(count(), 2);
        memory(folder.path(), now_ms + 25 * 3_600_000).forget_old();
        assert_eq!(count(), 0);
    }

    #[test]
    fn leases_are_remembered_until_they_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = memory(folder.path(), 1);
        let key = |text: &str| text.parse::<AgentKey>().expect("a key");
        let lease = |lock: &str| Leased {
            lock: lock.to_owned(),
            path: "p".to_owned(),
            place: "/l".to_owned(),
        };
        memory.lease(&key("claude/s"), &lease("l1"));
        memory.lease(&key("claude/s/a"), &lease("l2"));
        memory.lease(&key("claude/s/a"), &lease("l2"));
        assert_eq!(memory.leased(&key("claude/s")), [lease("l1"), lease("l2")]);
        assert_eq!(memory.leased(&key("claude/s/a")), [lease("l2")]);
        memory.keep(&key("claude/s"), |lease| lease.lock == "l2");
        assert_eq!(memory.leased(&key("claude/s")), [lease("l2")]);
        assert_eq!(memory.leased(&key("claude/s/a")), [lease("l2")]);
        memory.lease(&key("claude/s"), &lease("l1"));
        memory.freed(&key("claude/s/a"));
        assert_eq!(memory.leased(&key("claude/s")), [lease("l1")]);
        memory.freed(&key("claude/s"));
        memory.lease(&key("claude/s/b"), &lease("l3"));
        assert_eq!(memory.leased(&key("claude/s")), [lease("l3")]);
        assert!(!memory.is_unheeded());
        memory.unheeded();
        assert!(memory.is_unheeded());
    }
}
