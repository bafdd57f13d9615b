//! The programs that a shell finds under the name `tenure`.
//!
//! **No program is run.** What stands in a folder of the `PATH` may be another user's, and asking it for its version
//! would run it. A build of tenure has its version as a mark in its bytes, which are read; a program
//! without the mark is another one, or an older one.

use crate::host::NAME;
use std::fs::{self, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tenure_os::regular;
use tenure_store::advice;

/// What a build is known by. Only this place has the whole text, so no other bytes of the program look like it.
#[used]
static MARK: &[u8] = concat!(
    "\x02tenure: this build is ",
    env!("CARGO_PKG_VERSION"),
    "\x03"
)
.as_bytes();

/// How many bytes of the mark are the same in all versions.
const SAME: usize = "\x02tenure: this build is ".len();

/// The longest version that is believed, and the largest program that is read.
const VERSION_BYTES_MAX: usize = 40;
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// A program that a shell could find.
pub(super) struct Program {
    pub(super) path: PathBuf,
    facts: Metadata,
}

/// Whether a program is this one, or a copy of it.
pub(super) fn is_this(program: &Program) -> bool {
    let own = std::env::current_exe().ok();
    let own = own.and_then(|path| Some((fs::metadata(&path).ok()?, path)));
    own.is_some_and(|(facts, path)| {
        (facts.dev(), facts.ino()) == (program.facts.dev(), program.facts.ino())
            || is_same(&facts, &path, program)
    })
}

/// The programs of that name, in the order of the `PATH`; one of several names for a file counts once.
pub(super) fn programs() -> Vec<Program> {
    let mut found: Vec<Program> = Vec::new();
    for path in advice::programs(None, NAME) {
        let Ok(facts) = fs::metadata(&path) else {
            continue;
        };
        let same =
            |known: &Program| (known.facts.dev(), known.facts.ino()) == (facts.dev(), facts.ino());
        if !found.iter().any(same) {
            found.push(Program { path, facts });
        }
    }
    found
}

/// Whether a program has the bytes of this one: a copy.
fn is_same(facts: &Metadata, path: &Path, program: &Program) -> bool {
    // Of a larger program only the beginning is read, which says nothing about the rest.
    facts.len() == program.facts.len()
        && facts.len() <= PROGRAM_BYTES_MAX
        && matches!((bytes_of(path), bytes_of(&program.path)), (Some(one), Some(other)) if one == other)
}

/// The bytes of a regular file. It is never waited for: by now a pipe may stand there.
fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    let file = regular::open(path, OpenOptions::new().read(true)).ok()?;
    let mut bytes = Vec::new();
    file.take(PROGRAM_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The version in the mark of a program.
pub(super) fn version_of(path: &Path) -> Option<String> {
    let bytes = bytes_of(path)?;
    let begins = MARK.get(..SAME)?;
    let mut rest = bytes.as_slice();
    loop {
        let at = rest.windows(SAME).position(|window| window == begins)?;
        rest = rest.get(at + SAME..)?;
        let end = rest
            .iter()
            .take(VERSION_BYTES_MAX)
            .position(|byte| *byte == 3);
        let version = end.and_then(|end| std::str::from_utf8(rest.get(..end)?).ok());
        let is_version = |text: &&str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
        };
        if let Some(version) = version.filter(is_version) {
            return Some(version.to_owned());
        }
    }
}
