//! A hostile member of a shared folder, at random: whatever it writes there, no process is signalled that is not proven,
//! every new name can be locked, no call hangs or breaks down, a holder whose list was taken away is told, and a lock that
//! the member leaves alone has one holder.
//!
//! `TENURE_MEMBER=SECONDS` says how long (5; 20 in CI, an hour by night), `TENURE_SEED` with which seed. A failure prints the
//! seed, and keeps no folder: the seed begins the same acts again.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the seed is for reading, and a hostile member removes what it likes"
)]

use crate::support::{Scene, Started, TENURE, eventually, state};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Cancel, CancelKind, Claim, Entry, Host, Lease, Mode, Process, Queueing, RequestId, Reservation,
    Stamp, WaitingFor,
};
use tenure_os::clock::instant;
use tenure_store::file::fuzzing;

/// How long a call may take: the guard's five seconds, and what a loaded machine adds.
const PATIENCE: Duration = Duration::from_secs(25);

/// The exit codes that the documents know, and those of signals by which nobody ended the call.
fn is_known(code: i32) -> bool {
    matches!(code, 0..=7 | 10 | 12 | 75 | 79..=81 | 124 | 126 | 127)
}

/// Draws by a seed.
struct Hand(u64);

impl Hand {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("a small number")
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }

    fn number(&mut self) -> u64 {
        let any = self.next();
        *self.pick(&[
            0,
            1,
            any,
            any >> 20,
            u64::MAX,
            u64::MAX - 1,
            1 << 53,
            (1 << 53) - 1,
            1 << 62,
        ])
    }
}

/// A process that no call has anything to do with.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        command.arg("100000").stdin(Stdio::null());
        Self(command.spawn().expect("a process"))
    }

    fn process(&self) -> Process {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("a live process");
        let (_, rest) = stat.rsplit_once(')').expect("a name");
        let started = rest
            .split_whitespace()
            .nth(19)
            .and_then(|field| field.parse().ok());
        Process {
            pid: self.0.id(),
            started,
        }
    }

    fn is_untouched(&self) -> bool {
        state(self.0.id()) == Some('S')
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder, seen by the one who may write it.
struct Member<'a> {
    hand: &'a mut Hand,
    /// Where the coordination files are.
    folder: PathBuf,
    /// The published record of the lock, in a format that has one.
    record: Option<PathBuf>,
    bystander: Process,
    here: Arc<Host>,
    acts: Vec<String>,
}

impl Member<'_> {
    /// Does one act. The names are those of locks that the honest use.
    fn acts(&mut self, names: &[&str]) {
        if let Some(record) = self.record.clone() {
            match self.hand.below(6) {
                0..=2 => return self.fields(&record),
                3 => return self.raw(&record),
                4 => return self.other_object(&record),
                _ => {}
            }
        }
        let name = *self.hand.pick(names);
        let list = self.folder.join(format!("{name}.tenure"));
        let floor = self.folder.join(".floor.tenure");
        match self.hand.below(10) {
            0..=3 => self.claims(&list),
            4 => self.raw(&list),
            5 => self.other_object(&list),
            6 => self.floor(&floor),
            7 => self.other_object(&floor),
            8 => self.signs(),
            _ => self.audit(),
        }
    }

    fn note(&mut self, act: &str, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.acts.push(format!("{act} {name}"));
    }

    /// A list that can be read, of claims that are not true.
    fn claims(&mut self, list: &Path) {
        self.note("claims in", list);
        let Ok(file) = opened(list) else { return };
        let found = fuzzing::read(file.as_fd()).ok();
        let mut entry = found
            .and_then(|(_, body)| fuzzing::decode(&body).ok())
            .unwrap_or_default();
        if entry.claims.is_empty() || self.hand.one_in(3) {
            let claim = self.claim(&entry);
            entry.last = entry.last.max(claim.ticket).max(claim.token.unwrap_or(0));
            entry.claims.push(claim);
        }
        for claim in &mut entry.claims {
            if self.hand.one_in(2) {
                let (hand, bystander) = (&mut *self.hand, self.bystander);
                twist(hand, claim, bystander);
            }
        }
        if self.hand.one_in(4) {
            entry.last = self.hand.number();
        }
        if self.hand.one_in(4) {
            entry.claims.clear();
        }
        if self.hand.one_in(4) {
            entry.ended = Some(self.stamp());
        }
        let Some(body) = fuzzing::encode(&entry) else {
            return;
        };
        if fuzzing::write(file.as_fd(), &body).is_err() {
            // No state to begin with: a page of its own.
            let _ = file.set_len(0);
            let sequence = self.hand.next() >> self.hand.below(60);
            let _ = (&file).write_all(&fuzzing::page(sequence, &body));
        }
    }

    fn claim(&mut self, entry: &Entry) -> Claim {
        let id = RequestId::new(format!("member-{}", self.hand.below(3))).expect("an id");
        let holder = tenure_core::Holder {
            request_id: id,
            actor: "member".to_owned(),
            process: Some(Process {
                pid: 999_999,
                started: Some(1),
            }),
            command: Some(self.bystander),
            host: Arc::clone(&self.here),
            why: "\u{1b}[31mred\u{7}".to_owned(),
            facts: Vec::new(),
        };
        let lease = Lease {
            ttl_ms: self.hand.number(),
            renewed: self.stamp(),
            renewals: self.hand.number(),
        };
        let kind = *self
            .hand
            .pick(&[tenure_core::Kind::Kernel, tenure_core::Kind::Detached]);
        let mut claim = Claim::new(
            entry.last.saturating_add(1),
            kind,
            holder,
            self.stamp(),
            lease,
        );
        claim.token = Some(entry.last.saturating_add(2));
        claim
    }

    fn stamp(&mut self) -> Stamp {
        Stamp {
            wall_ms: self.hand.number(),
            boot_ms: self.hand.number(),
        }
    }

    /// A record with fields that are not true, or are no fields of the format.
    fn fields(&mut self, record: &Path) {
        self.note("fields in", record);
        let text = opened_text(record);
        let twisted = if let Ok(mut value) = serde_json::from_str::<Value>(&text) {
            for _ in 0..=self.hand.below(3) {
                self.field(&mut value);
            }
            value.to_string()
        } else {
            self.lines(&text)
        };
        let Ok(mut file) = opened(record) else { return };
        let _ = file.set_len(0);
        let _ = file.write_all(twisted.as_bytes());
    }

    /// The sprint's record, which has one field in a line, with other lines.
    fn lines(&mut self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=self.hand.below(3) {
            let value = self.value();
            let at = self.hand.below(lines.len() + 1);
            match lines.get_mut(at) {
                Some(line) if self.hand.one_in(4) => line.clear(),
                Some(line) => {
                    let key = line.split(':').next().unwrap_or_default();
                    *line = format!("{key}: {value}");
                }
                None => lines.push(format!("pid: {value}")),
            }
        }
        lines.join("\n")
    }

    /// Changes one field, somewhere in a document.
    fn field(&mut self, within: &mut Value) {
        let new = self.value();
        let Some(fields) = within.as_object_mut().filter(|fields| !fields.is_empty()) else {
            *within = new;
            return;
        };
        let at = self.hand.below(fields.len());
        let key = fields.keys().nth(at).cloned().unwrap_or_default();
        match fields.get_mut(&key) {
            Some(inner) if inner.is_object() && !self.hand.one_in(3) => self.field(inner),
            _ if self.hand.one_in(5) => drop(fields.remove(&key)),
            _ => drop(fields.insert(key, new)),
        }
    }

    fn value(&mut self) -> Value {
        let (number, pid) = (self.hand.number(), self.bystander.pid);
        let texts = [
            "member-1",
            "holder-1",
            "2999-12-31T23:59:59Z",
            "1970-01-01T00:00:00Z",
            "0000-00-00T99:99:99Z",
            "../../victim",
            "\u{1b}[31mred\u{7}",
            "\n",
            "",
        ];
        let text = *self.hand.pick(&texts);
        match self.hand.below(8) {
            0 => Value::Null,
            1 => json!(number),
            2 => json!(-1.5e300),
            3 => json!([pid, {"pid": pid}]),
            4 => json!("x".repeat(self.hand.below(70_000))),
            5 => json!(pid),
            _ => json!(text),
        }
    }

    /// Bytes of any kind over a file.
    fn raw(&mut self, path: &Path) {
        self.note("bytes in", path);
        let Ok(mut file) = opened(path) else { return };
        let mut bytes = Vec::new();
        let _ = (&file).take(1 << 16).read_to_end(&mut bytes);
        match self.hand.below(4) {
            0 => bytes.clear(),
            1 => bytes.truncate(self.hand.below(bytes.len() + 1)),
            2 => {
                bytes = (0..self.hand.below(5_000))
                    .map(|_| self.hand.next().to_le_bytes()[0])
                    .collect();
            }
            _ => {
                for _ in 0..=self.hand.below(8) {
                    let at = self.hand.below(bytes.len() + 1);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.hand.below(8);
                    }
                }
            }
        }
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = file.write_all(&bytes);
    }

    /// Something else than a file, or another file, at its name.
    fn other_object(&mut self, path: &Path) {
        self.note("another object at", path);
        let _ = fs::remove_file(path);
        let _ = fs::remove_dir(path);
        let _ = match self.hand.below(6) {
            0 => fs::create_dir(path),
            1 => symlink("/etc/hostname", path),
            2 => symlink(self.folder.join("nowhere"), path),
            3 => Command::new("mkfifo").arg(path).status().map(drop),
            4 => fs::hard_link(self.folder.join("victim"), path),
            _ => Ok(()),
        };
    }

    fn floor(&mut self, floor: &Path) {
        self.note("a number in", floor);
        let Ok(file) = opened(floor) else { return };
        let entry = Entry {
            last: self.hand.number(),
            ..Entry::default()
        };
        let Some(body) = fuzzing::encode(&entry) else {
            return;
        };
        let _ = file.set_len(0);
        let _ = (&file).write_all(&fuzzing::page(1, &body));
    }

    fn signs(&mut self) {
        let name = format!(".agent-{:x}", self.hand.next());
        let path =
            self.folder.join(
                self.hand
                    .pick(&[name.as_str(), "..floor.tenure.0.new", ".agent-"]),
            );
        self.note("a sign", &path);
        let _ = fs::write(&path, "x".repeat(self.hand.below(100)));
    }

    fn audit(&mut self) {
        let folder = self.folder.join("audit");
        self.note("in the audit", &folder);
        if self.hand.one_in(3) {
            let _ = fs::remove_dir_all(&folder);
            let _ = symlink("../elsewhere", &folder);
            return;
        }
        let _ = fs::create_dir(&folder);
        // Nothing outside of this folder is this test's to write.
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let own = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
        for file in own.filter(|_| !folder.is_symlink()) {
            self.raw(&file.path());
        }
    }
}

/// Makes some of a claim untrue.
fn twist(hand: &mut Hand, claim: &mut Claim, bystander: Process) {
    let stamp = Stamp {
        wall_ms: hand.number(),
        boot_ms: hand.number(),
    };
    match hand.below(13) {
        0 => claim.holder.process = Some(bystander),
        1 => claim.holder.command = Some(bystander),
        2 => claim.holder.process = None,
        3 => claim.token = Some(hand.number()),
        4 => claim.token = None,
        5 => claim.entered = stamp,
        6 => claim.grace_ms = hand.number(),
        7 => {
            claim.cancel = Some(Cancel {
                by: "\u{202e}member".to_owned(),
                at: stamp,
                actor: String::new(),
                why: "\n".repeat(9),
                kind: *hand.pick(&[CancelKind::Operator, CancelKind::NewerRun]),
                grace_ms: Some(hand.number()),
            });
        }
        8 => {
            claim.reservation = Some(Reservation {
                since: stamp,
                grace_ms: hand.number(),
            });
        }
        9 => claim.aside = Some(stamp),
        12 => {
            // A circle, with itself or with another lock.
            claim.waiting_for = Some(WaitingFor {
                place: hand.pick(&["", ".", "/", "/proc/self"]).to_string(),
                name: hand.pick(&["held", "past", "../x"]).to_string(),
                ticket: hand.number(),
            });
        }
        10 => {
            claim.mode = *hand.pick(&[Mode::Exclusive, Mode::Shared]);
            claim.queueing = *hand.pick(&[Queueing::Fifo, Queueing::Single, Queueing::Max]);
        }
        _ => {
            claim.lease = Lease {
                ttl_ms: hand.number(),
                renewed: stamp,
                renewals: hand.number(),
            }
        }
    }
}

fn opened(path: &Path) -> std::io::Result<File> {
    // Neither a FIFO nor a device keeps the member waiting.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(nonblock)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::ErrorKind::InvalidInput.into())
    }
}

/// How long this test goes on.
fn seconds() -> u64 {
    let said = std::env::var("TENURE_MEMBER")
        .ok()
        .and_then(|said| said.parse().ok());
    said.unwrap_or(if std::env::var_os("CI").is_some() {
        20
    } else {
        5
    })
}

#[test]
fn whatever_a_member_of_a_shared_folder_writes_others_go_on() {
    let seed = std::env::var("TENURE_SEED")
        .ok()
        .and_then(|said| said.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        u64::from(std::process::id()) << 20
            | u64::from(
                rustix::process::getppid()
                    .map_or(1, |pid| pid.as_raw_nonzero().get().unsigned_abs()),
            )
    });
    println!("TENURE_SEED={seed}");
    let mut hand = Hand(seed);
    let bystander = Bystander::new();
    let until = instant() + Duration::from_secs(seconds());
    let mut rounds = 0;
    while rounds == 0 || instant() < until {
        match PUBLISHED.get(hand.below(PUBLISHED.len() * 2)) {
            Some(format) => published_round(&mut hand, &bystander, rounds, format),
            None => round(&mut hand, &bystander, rounds),
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
}

/// A folder, some acts of the member between calls of the honest, and what has to hold.
fn round(hand: &mut Hand, bystander: &Bystander, number: u32) {
    let scene = Scene::new();
    let folder = scene.locks();
    fs::create_dir_all(&folder).expect("a folder");
    let mode = *hand.pick(&[0o700, 0o3770]);
    fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("its rights");
    fs::write(scene.path("victim"), "mine").expect("a file");
    for name in ["held", "past"] {
        let _ = scene
            .run(["run", name, "--", "true"])
            .expect(0, "nothing is wrong yet");
    }
    let mut holder = scene.tenure(["run", "held", "-q", "--ttl", "3s", "--", "sleep", "100"]);
    holder.stdout(Stdio::null()).stderr(Stdio::piped());
    let holder = Started::new(&mut holder);
    eventually("it is held", || scene.standing("held") == "held");
    let ticket = granted(&scene.locks().join("held.tenure"))[0];
    fs::create_dir(scene.path("elsewhere")).expect("a folder");
    let alone = scene.hold("alone", ["-q"]);
    let here = Arc::new(tenure_os::process::Identity::current().host);
    let mut member = Member {
        hand,
        folder,
        record: None,
        bystander: bystander.process(),
        here,
        acts: Vec::new(),
    };
    let names = ["held", "past", "orphan"];
    for step in 0..3 {
        for _ in 0..=member.hand.below(3) {
            member.acts(&names);
        }
        let told = |what: &str, acts: &[String]| format!("{what} in round {number} after {acts:?}");
        let fresh = format!("fresh-{step}");
        let new = call(&scene, &["run", &fresh, "-n", "--", "true"]);
        assert_eq!(
            new.0,
            Some(0),
            "{}: {}",
            told("a new name", &member.acts),
            new.1
        );
        let again = call(&scene, &["check", &fresh]);
        assert_eq!(
            again.0,
            Some(0),
            "{}: {}",
            told("its check", &member.acts),
            again.1
        );
        let second = call(&scene, &["run", "alone", "-n", "--", "true"]);
        let held = told("a lock that it left alone", &member.acts);
        assert_eq!(second.0, Some(4), "{held}: {}", second.1);
        let name = *member.hand.pick(&names);
        for words in CALLS {
            if member.hand.one_in(3) {
                let words = words.replace("NAME", name);
                is_answered(&scene, &words, &told(&words, &member.acts));
            }
        }
        let what = told("a stranger", &member.acts);
        are_left_alone(&scene, bystander, &what);
    }
    let _ = alone.open().expect(0, "the member left it alone");
    is_told(&scene, holder, ticket, &member.acts);
}

/// A call ends in time, with an exit code that the documents know, and its answer cannot act on a terminal.
fn is_answered(scene: &Scene, words: &str, what: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let (code, said) = call(scene, &words);
    println!(
        "DBG {code:?} {} {}",
        words.join(" "),
        said.lines().next().unwrap_or("")
    );
    assert!(code.is_some_and(is_known), "{what}: {code:?} {said}");
    assert!(!said.contains("panicked"), "{what}: {said}");
    let acts_on_terminal = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!said.contains(acts_on_terminal), "{what}: {said:?}");
}

/// No process was signalled that has nothing to do with the lock, and no file was changed.
fn are_left_alone(scene: &Scene, bystander: &Bystander, what: &str) {
    assert!(bystander.is_untouched(), "{what}");
    let victim = fs::read_to_string(scene.path("victim"));
    assert_eq!(victim.expect("the file"), "mine", "{what}");
}

/// A format with records: how a call names its place and its locks, and where the record is.
struct Published {
    profile: &'static str,
    /// Where the format keeps its locks.
    place: &'static str,
    /// What a call that takes the lock has to say.
    takes: &'static str,
    /// The lock, another one, and the beginning of new ones; a sprint has only one.
    names: Option<[&'static str; 3]>,
    /// The folder of the records, and what is around a name there.
    folder: &'static str,
    file: [&'static str; 2],
}

impl Published {
    /// A call of this format about this lock, with what it has to say.
    fn words(&self, place: &Path, verb: &str, name: &str, more: &str) -> String {
        let takes = if matches!(verb, "run" | "acquire") {
            self.takes
        } else {
            ""
        };
        let name = if name.is_empty() {
            String::new()
        } else {
            format!(" {name}")
        };
        let (profile, flag, dir) = (self.profile, self.place, place.display());
        format!("--profile {profile} {verb}{name} {flag} {dir}{takes}{more}")
    }
}

const PUBLISHED: [Published; 4] = [
    Published {
        profile: "sprint",
        place: "--project-root",
        takes: " --epic-spec epic5",
        names: None,
        folder: "",
        file: [".sprint-running", ""],
    },
    Published {
        profile: "resume",
        place: "--dir",
        takes: "",
        names: Some(["held", "alone", "fresh-"]),
        folder: "resume_locks",
        file: ["", ".lock"],
    },
    Published {
        profile: "session",
        place: "--dir",
        takes: "",
        names: Some(["42", "43", "10"]),
        folder: "locks",
        file: ["", ".lock"],
    },
    Published {
        profile: "fleet",
        place: "--dir",
        takes: " --intent-name x --intent-version 1",
        names: Some(["held", "alone", "fresh-"]),
        folder: "",
        file: ["", ".lock"],
    },
];

/// Plays a round in a format that other programs read: the member writes records, too.
fn published_round(hand: &mut Hand, bystander: &Bystander, number: u32, format: &Published) {
    let scene = Scene::new();
    let place = scene.path("place");
    let records = place.join(format.folder);
    let mode = *hand.pick(&[0o700, 0o3770]);
    for folder in [&place, &records] {
        fs::create_dir_all(folder).expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("its rights");
    }
    fs::write(scene.path("victim"), "mine").expect("a file");
    let words = |verb: &str, name: &str, more: &str| format.words(&place, verb, name, more);
    let [lock, other, fresh] = format.names.unwrap_or(["sprint", "", ""]);
    let holds = |name: &str, id: &str| {
        let words = words("run", name, &format!(" -q --request-id {id} -- sleep 100"));
        let mut holder = scene.tenure(words.split(' '));
        holder.stdout(Stdio::null()).stderr(Stdio::piped());
        Started::new(&mut holder)
    };
    let [before, behind] = format.file;
    let file = match format.names {
        Some(_) => format!("{before}{lock}{behind}"),
        None => before.to_owned(),
    };
    let record = records.join(&file);
    let mut holder = holds(lock, "holder-1");
    eventually("its record", || record.exists());
    let alone = format.names.map(|_| holds(other, "alone-1"));
    if alone.is_some() {
        eventually("its record", || {
            records.join(format!("{before}{other}{behind}")).exists()
        });
    }
    let here = Arc::new(tenure_os::process::Identity::current().host);
    let mut member = Member {
        hand,
        folder: records.join(".tenure"),
        record: Some(record.clone()),
        bystander: bystander.process(),
        here,
        acts: Vec::new(),
    };
    for step in 0..3 {
        for _ in 0..=member.hand.below(3) {
            member.acts(&[&file]);
        }
        let told = |what: &str, acts: &[String]| format!("{what} in round {number} after {acts:?}");
        if alone.is_some() {
            let new = words("run", &format!("{fresh}{step}"), " -n -- true");
            let (code, said) = call(&scene, &new.split(' ').collect::<Vec<_>>());
            assert_eq!(code, Some(0), "{}: {said}", told(&new, &member.acts));
            let second = words("run", other, " -n -- true");
            let (code, said) = call(&scene, &second.split(' ').collect::<Vec<_>>());
            assert_eq!(code, Some(4), "{}: {said}", told(&second, &member.acts));
        }
        for (verb, named, more) in PUBLISHED_CALLS {
            if member.hand.one_in(3) {
                let words = words(verb, if named { lock } else { "" }, more);
                is_answered(&scene, &words, &told(&words, &member.acts));
            }
        }
        are_left_alone(&scene, bystander, &told("a stranger", &member.acts));
    }
    if let Some(mut alone) = alone {
        assert!(
            !alone.has_ended(),
            "the member left it alone: {:?}",
            member.acts
        );
        alone.kill_with_children();
    }
    // Where no caller may take a record that cannot be read, it excludes everybody, as before, and its holder goes on.
    let (code, said) = call(
        &scene,
        &words("check", lock, " --output json")
            .split(' ')
            .collect::<Vec<_>>(),
    );
    let excludes = matches!(format.profile, "resume" | "fleet")
        && (code == Some(7) || said.contains("LOCK_UNREADABLE"));
    let text = opened_text(&record);
    if !excludes && !text.contains("holder-1") && !text.contains(&holder.pid().to_string()) {
        let what = format!(
            "a holder without a record is told in round {number}: {:?}",
            member.acts
        );
        eventually(&what, || holder.has_ended());
    }
    holder.kill_with_children();
}

/// What honest users call about a lock that has a record.
const PUBLISHED_CALLS: [(&str, bool, &str); 13] = [
    ("check", true, ""),
    ("check", true, " --output json"),
    ("list", false, ""),
    ("list", false, " --output json"),
    ("run", true, " -n -- true"),
    ("run", true, " -w 300ms -- true"),
    ("acquire", true, " -n --owner none --request-id member-1"),
    ("release", true, " --request-id member-1"),
    ("heartbeat", true, " --request-id member-0"),
    ("cancel", true, ""),
    ("cancel", true, " --orphan --yes"),
    ("force-release", true, " --yes"),
    ("clean", false, ""),
];

fn opened_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if path.is_file() {
        let _ = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What honest users call about a lock.
const CALLS: [&str; 16] = [
    "check NAME",
    "check NAME --output json",
    "list",
    "list --output json",
    "run NAME -n -- true",
    "run NAME -w 300ms -- true",
    "wait NAME -w 300ms",
    "acquire NAME -n --owner none --request-id member-1",
    "release NAME --request-id member-1",
    "heartbeat NAME --request-id member-0",
    "cancel NAME",
    "cancel NAME --orphan --yes",
    "force-release NAME --yes",
    "clean",
    "doctor",
    "audit",
];

/// The exit code of a call, and what it said.
fn call(scene: &Scene, words: &[&str]) -> (Option<i32>, String) {
    let mut command = scene.program("timeout");
    command
        .args(["-s", "KILL", &PATIENCE.as_secs().to_string(), TENURE])
        .args(words);
    let output = command.output().expect("a process");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// The tickets of the claims that hold, by a list that can be read.
fn granted(list: &Path) -> Vec<u64> {
    let entry = opened(list).ok().and_then(|file| {
        let (_, body) = fuzzing::read(file.as_fd()).ok()?;
        fuzzing::decode(&body).ok()
    });
    let entry = entry.unwrap_or_default();
    entry.granted().map(|claim| claim.ticket).collect()
}

/// A holder whose claim the list no longer has is told: it ends with 80, or was asked to stop by the list, or says what is
/// wrong. One whose claim still stands goes on.
fn is_told(scene: &Scene, mut holder: Started, ticket: u64, acts: &[String]) {
    let list = scene.locks().join("held.tenure");
    if !granted(&list).contains(&ticket) {
        eventually(
            &format!("a holder without a claim is told: {acts:?}"),
            || holder.has_ended(),
        );
    }
    holder.kill_with_children();
}
