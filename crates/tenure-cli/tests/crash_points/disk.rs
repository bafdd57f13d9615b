//! What a disk may hold after a power cut, by the system calls that a trace has.
//!
//! [`Disk`] takes the calls of `strace` that change files and names below one folder. [`Disk::image`] cuts the power behind
//! one of them. What a later sync forced is there. Of everything else, each write, cut, rename, link and removal is kept,
//! dropped or torn at 512 bytes, in any combination that the seed draws. A file that grew by a lost write may have grown all
//! the same: then it has zeros there.
//!
//! The model is harder than file systems are: they keep the order of names, and most write whole pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The calls that change a folder or its files.
pub(crate) const CALLS: &str = "trace=open,openat,write,writev,pwrite64,pwritev,pwritev2,rename,renameat,renameat2,link,linkat,\
                                unlink,unlinkat,mkdir,mkdirat,ftruncate,fsync,fdatasync";

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// Numbers that a seed draws.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = usize::try_from(mixed >> 33).expect("a 64-bit machine");
        drawn % limit
    }
}

/// A change that may be on the disk or not. A file is known by its number, whatever its name.
#[derive(Debug, Clone)]
enum Change {
    Folder(String),
    /// A name for a file: a new one, or a second one.
    Name(String, usize),
    Rename {
        from: String,
        to: String,
        file: usize,
        /// The file that gets the old name, where two are exchanged.
        other: Option<usize>,
    },
    Remove(String, usize),
    Write(usize, usize, Vec<u8>),
    Cut(usize, usize),
    /// Everything before it about this file is on the disk.
    SyncFile(usize),
    /// Every name before it in this folder is on the disk.
    SyncFolder(String),
}

/// What becomes of the changes that nothing forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Dropped,
    Torn,
}

/// The changes to a folder, in their order.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    root: String,
    changes: Vec<Change>,
    names: BTreeMap<String, usize>,
    /// Folders that were there before.
    folders: BTreeSet<String>,
    lengths: Vec<usize>,
}

/// Files and folders as a machine finds them when it starts again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Image {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    folders: BTreeSet<String>,
}

impl Disk {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: format!("{}/", root.to_str().expect("a path that is text")),
            ..Self::default()
        }
    }

    /// A folder that was there before.
    pub(crate) fn has_folder(&mut self, folder: &Path) {
        let path = self.below(folder.to_str().expect("a path that is text"));
        let path = path.expect("a folder of this disk");
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([path.len()]) {
            self.folders.insert(path[..end].to_owned());
        }
    }

    /// How many changes there are. A cut behind the last one of them loses only what was not forced.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The file of this name, as every reader saw it after each change to it.
    pub(crate) fn versions(&self, path: &str) -> BTreeSet<Vec<u8>> {
        let mut seen = BTreeSet::new();
        for upto in 0..=self.len() {
            let image = self.replay(upto, |_| Fate::Kept, &mut Random::new(1));
            seen.extend(image.files.get(path).cloned());
        }
        seen
    }

    /// All that was written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().filter_map(|change| match change {
            Change::Write(_, _, bytes) => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Takes the calls of a trace.
    pub(crate) fn take(&mut self, trace: &str) {
        for line in trace.lines() {
            let (Some((call, rest)), Some((_, answer))) =
                (line.split_once('('), line.rsplit_once(" = "))
            else {
                continue;
            };
            if !answer.starts_with('-') {
                self.take_call(call, &arguments(rest), answer);
            }
        }
    }

    fn take_call(&mut self, call: &str, words: &[String], answer: &str) {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let number = |text: &str| -> usize {
            let digits = text.split(|c: char| !c.is_ascii_digit()).next();
            digits.unwrap_or_default().parse().expect("a number")
        };
        match call {
            "open" | "openat" if words.iter().any(|word| word.contains("O_CREAT")) => {
                let path = match call {
                    "open" => self.path("", word(0)),
                    _ => self.path(word(0), word(1)),
                };
                if let Some(path) = path
                    && !self.names.contains_key(&path)
                {
                    let file = self.lengths.len();
                    self.lengths.push(0);
                    self.names.insert(path.clone(), file);
                    self.changes.push(Change::Name(path, file));
                }
            }
            "mkdir" | "mkdirat" => {
                let path = match call {
                    "mkdir" => self.path("", word(0)),
                    _ => self.path(word(0), word(1)),
                };
                self.changes.extend(path.map(Change::Folder));
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                let Some(file) = self.file(word(0)) else {
                    return;
                };
                let mut bytes = quoted(word(1));
                bytes.truncate(number(answer));
                let at = match call {
                    "write" | "writev" => self.lengths[file],
                    _ => number(word(3)),
                };
                self.lengths[file] = self.lengths[file].max(at + bytes.len());
                self.changes.push(Change::Write(file, at, bytes));
            }
            "ftruncate" => {
                let Some(file) = self.file(word(0)) else {
                    return;
                };
                self.lengths[file] = number(word(1));
                self.changes.push(Change::Cut(file, number(word(1))));
            }
            "rename" | "renameat" | "renameat2" => {
                let (from, to) = match call {
                    "rename" => (self.path("", word(0)), self.path("", word(1))),
                    _ => (self.path(word(0), word(1)), self.path(word(2), word(3))),
                };
                let (Some(from), Some(to)) = (from, to) else {
                    return;
                };
                let file = self.names.remove(&from).expect("a file that was renamed");
                let other = self.names.insert(to.clone(), file);
                let other = other.filter(|_| word(4).contains("RENAME_EXCHANGE"));
                if let Some(other) = other {
                    self.names.insert(from.clone(), other);
                }
                self.changes.push(Change::Rename {
                    from,
                    to,
                    file,
                    other,
                });
            }
            "link" | "linkat" => {
                let (from, to) = match call {
                    "link" => (self.path("", word(0)), self.path("", word(1))),
                    _ => (self.path(word(0), word(1)), self.path(word(2), word(3))),
                };
                let (Some(from), Some(to)) = (from, to) else {
                    return;
                };
                let file = self.names[&from];
                self.names.insert(to.clone(), file);
                self.changes.push(Change::Name(to, file));
            }
            "unlink" | "unlinkat" => {
                let path = match call {
                    "unlink" => self.path("", word(0)),
                    _ => self.path(word(0), word(1)),
                };
                if let Some(path) = path
                    && let Some(file) = self.names.remove(&path)
                {
                    self.changes.push(Change::Remove(path, file));
                }
            }
            "fsync" | "fdatasync" => {
                if let Some(file) = self.file(word(0)) {
                    self.changes.push(Change::SyncFile(file));
                } else if let Some(path) = self.below(&of_descriptor(word(0))) {
                    self.changes.push(Change::SyncFolder(path));
                }
            }
            _ => {}
        }
    }

    /// The path below the root; `None` for others.
    fn below(&self, path: &str) -> Option<String> {
        let path = format!("{path}/");
        let path = path.strip_prefix(&self.root)?;
        Some(path.trim_end_matches('/').to_owned())
    }

    fn path(&self, folder: &str, name: &str) -> Option<String> {
        let name = String::from_utf8(quoted(name)).ok()?;
        if name.starts_with('/') {
            return self.below(&name);
        }
        self.below(&format!("{}/{name}", of_descriptor(folder)))
    }

    fn file(&self, descriptor: &str) -> Option<usize> {
        let path = self.below(&of_descriptor(descriptor))?;
        self.names.get(&path).copied()
    }

    /// What may be there after a cut behind the first `upto` changes, of which the system had written the first `settled`
    /// by itself.
    pub(crate) fn image(&self, upto: usize, settled: usize, random: &mut Random) -> Image {
        let keeps_names = random.below(2) == 0;
        let loses_data = random.below(4) == 0;
        let mut drawn = Random::new(random.below(usize::MAX >> 32) as u64);
        let fate = |at: usize| {
            let is_data = matches!(self.changes[at], Change::Write(..) | Change::Cut(..));
            if at < settled || self.is_forced(at, upto) || (keeps_names && !is_data) {
                return Fate::Kept;
            }
            if loses_data && is_data {
                return Fate::Dropped;
            }
            [Fate::Kept, Fate::Dropped, Fate::Torn][drawn.below(3)]
        };
        self.replay(upto, fate, random)
    }

    /// Whether a sync before the cut put a change on the disk.
    fn is_forced(&self, at: usize, upto: usize) -> bool {
        let after = &self.changes[at + 1..upto];
        let folder_of = |path: &str| {
            path.rsplit_once('/')
                .map_or("", |(folder, _)| folder)
                .to_owned()
        };
        let file_synced = |file: usize| {
            after
                .iter()
                .any(|change| matches!(change, Change::SyncFile(it) if *it == file))
        };
        let folder_synced = |path: &str| {
            let folder = folder_of(path);
            after
                .iter()
                .any(|change| matches!(change, Change::SyncFolder(it) if *it == folder))
        };
        match &self.changes[at] {
            Change::Write(file, ..) | Change::Cut(file, _) => file_synced(*file),
            Change::Folder(path) | Change::Name(path, _) | Change::Remove(path, _) => {
                folder_synced(path)
            }
            // The name that it takes is what counts; the old one may stay as well.
            Change::Rename { to, .. } => folder_synced(to),
            Change::SyncFile(_) | Change::SyncFolder(_) => true,
        }
    }

    fn replay(
        &self,
        upto: usize,
        mut fate: impl FnMut(usize) -> Fate,
        random: &mut Random,
    ) -> Image {
        let (mut names, mut folders) = (BTreeMap::<String, usize>::new(), self.folders.clone());
        let mut data = vec![Vec::new(); self.lengths.len()];
        for (at, change) in self.changes.iter().take(upto).enumerate() {
            let fate = fate(at);
            match change {
                Change::Write(file, start, bytes) => {
                    put(&mut data[*file], *start, bytes, fate, random);
                }
                _ if fate == Fate::Dropped => {}
                Change::Cut(file, length) => data[*file].resize(*length, 0),
                Change::Folder(path) => {
                    folders.insert(path.clone());
                }
                Change::Name(path, file) => {
                    names.insert(path.clone(), *file);
                }
                Change::Rename {
                    from,
                    to,
                    file,
                    other,
                } => {
                    names.insert(to.clone(), *file);
                    match other {
                        Some(other) => {
                            names.insert(from.clone(), *other);
                        }
                        None if names.get(from) == Some(file) => {
                            names.remove(from);
                        }
                        None => {}
                    }
                }
                Change::Remove(path, file) if names.get(path) == Some(file) => {
                    names.remove(path);
                }
                Change::Remove(..) | Change::SyncFile(_) | Change::SyncFolder(_) => {}
            }
        }
        let has_folder = |path: &str, folders: &BTreeSet<String>| {
            path.match_indices('/')
                .all(|(end, _)| folders.contains(&path[..end]))
        };
        let whole = folders.clone();
        folders.retain(|path| has_folder(path, &whole));
        let files = names
            .into_iter()
            .filter(|(path, _)| has_folder(path, &whole));
        Image {
            files: files
                .map(|(path, file)| (path, data[file].clone()))
                .collect(),
            folders,
        }
    }
}

/// Writes to a file as the disk did. A lost part beyond the end is missing, or has zeros.
fn put(file: &mut Vec<u8>, start: usize, bytes: &[u8], fate: Fate, random: &mut Random) {
    let end = start + bytes.len();
    let grows = fate == Fate::Kept || random.below(2) == 0;
    let mut at = start;
    while at < end {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        let is_kept = match fate {
            Fate::Kept => true,
            Fate::Dropped => false,
            Fate::Torn => random.below(2) == 0,
        };
        if is_kept || (grows && file.len() < next) {
            file.resize(file.len().max(next), 0);
        }
        if is_kept {
            file[at..next].copy_from_slice(&bytes[at - start..next - start]);
        }
        at = next;
    }
}

impl Image {
    /// Puts it where a program finds it, last written a while ago.
    pub(crate) fn lay_out(&self, root: &Path) {
        let mut folder = std::fs::DirBuilder::new();
        folder.mode(0o700).recursive(true);
        for path in &self.folders {
            folder
                .create(root.join(path))
                .expect("a folder of an image");
        }
        let a_while_ago = SystemTime::now() - Duration::from_secs(20);
        for (path, bytes) in &self.files {
            let mut options = File::options();
            let options = options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(root.join(path)).expect("a file of an image");
            std::io::Write::write_all(&mut file, bytes).expect("its bytes");
            file.set_modified(a_while_ago).expect("its time");
        }
    }
}

/// The path of a descriptor, as `strace -y` shows it.
fn of_descriptor(word: &str) -> String {
    let path = word.split_once('<').map_or("", |(_, path)| path);
    path.trim_end_matches('>').to_owned()
}

/// The arguments of a call, apart.
fn arguments(rest: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for c in rest.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            _ if is_text => {}
            '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                words.push(std::mem::take(&mut word).trim().to_owned());
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    words.push(word.trim().to_owned());
    words
}

/// The bytes of all texts in an argument.
fn quoted(word: &str) -> Vec<u8> {
    let (mut bytes, mut is_text) = (Vec::new(), false);
    let mut rest = word.bytes().peekable();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit");
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => is_text = !is_text,
            _ if !is_text => {}
            b'\\' => match rest.next().expect("what is escaped") {
                b'x' => {
                    let (high, low) = (rest.next(), rest.next());
                    let value = digit(high.expect("a digit")) * 16 + digit(low.expect("a digit"));
                    bytes.push(u8::try_from(value).expect("a byte"));
                }
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                b'v' => bytes.push(0x0b),
                b'f' => bytes.push(0x0c),
                first @ b'0'..=b'7' => {
                    let mut value = digit(first);
                    while let Some(next @ b'0'..=b'7') = rest.peek().copied() {
                        value = value * 8 + digit(next);
                        rest.next();
                    }
                    bytes.push(u8::try_from(value).expect("a byte"));
                }
                other => bytes.push(other),
            },
            other => bytes.push(other),
        }
    }
    bytes
}

#[test]
fn a_trace_says_what_is_on_the_disk_and_what_may_not_be() {
    let trace = "mkdirat(AT_FDCWD</r>, \"/r/l\", 0700) = 0\n\
                 openat(5</r/l>, \"a.new\", O_RDWR|O_CREAT, 0600) = 6</r/l/a.new>\n\
                 openat(5</r/l>, \"b\", O_RDWR|O_CREAT, 0600) = -1 EEXIST (File exists)\n\
                 write(6</r/l/a.new>, \"\\x61\\\"\\n(\\0b\", 6) = 6\n\
                 fsync(6</r/l/a.new>) = 0\n\
                 renameat2(5</r/l>, \"a.new\", 5</r/l>, \"a\", RENAME_NOREPLACE) = 0\n\
                 pwritev(6</r/l/a>, [{iov_base=\"x\", iov_len=1}, {iov_base=\"yz\", iov_len=2}], 2, 512) = 3\n\
                 write(1</dev/null>, \"no\", 2) = 2\n";
    let mut disk = Disk::new(Path::new("/r"));
    disk.take(trace);
    let whole = disk.replay(disk.len(), |_| Fate::Kept, &mut Random::new(1));
    let mut expected = b"a\"\n(\0b".to_vec();
    expected.resize(512, 0);
    expected.extend(b"xyz");
    assert_eq!(whole.files, BTreeMap::from([("l/a".to_owned(), expected)]));
    assert_eq!(
        disk.versions("l/a").len(),
        2,
        "before the second write and behind it"
    );
    // The first write was forced; its name was not, nor what came later.
    let mut seen = BTreeSet::new();
    for seed in 0..1_000 {
        let image = disk.image(disk.len(), 0, &mut Random::new(seed));
        for (path, bytes) in image.files {
            assert!(bytes.starts_with(b"a\"\n(\0b"), "{path} was forced");
            seen.insert((path, bytes.len(), bytes.ends_with(b"xyz")));
        }
    }
    let expected = [
        ("l/a", 6, false),
        ("l/a", 515, false),
        ("l/a", 515, true),
        ("l/a.new", 6, false),
        ("l/a.new", 515, false),
        ("l/a.new", 515, true),
    ];
    let expected = expected.map(|(path, length, is_kept)| (path.to_owned(), length, is_kept));
    assert_eq!(seen, BTreeSet::from(expected));
}
