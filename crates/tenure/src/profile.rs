//! A profile: one policy row, one file format. Nothing outside this folder knows which is used.
//!
//! Four of the five profiles publish: while a claim holds, a record in the format of their system
//! stands at the path that other programs look at. The record is the truth about the holder; the
//! coordination file beside it keeps what the format has no place for (the queue, past holds, the
//! rising counter). How a record is created, replaced and removed without ever overwriting
//! somebody else's is the file store's affair; what stands in it is decided here.

mod document;
#[cfg(test)]
mod fixture;
mod fleet;
mod instant;
mod native;
pub(crate) mod own;
mod resume;
mod session;
mod sprint;

pub use fleet::Fleet;
pub use native::Native;
pub(crate) use native::SUFFIX;
pub use resume::Resume;
pub use session::Session;
pub use sprint::Sprint;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use tenure_core::{Claim, Host, LockName, Now, Policy};

/// One system's rules and format.
pub trait Profile: Debug + Send + Sync {
    /// The row by which locks are judged and decided.
    fn policy(&self) -> Policy;

    /// The folder of the locks below the place that the caller names.
    fn folder(&self, place: &Path) -> PathBuf {
        place.to_owned()
    }

    /// What that folder has to be like.
    fn place(&self) -> Place {
        Place::default()
    }

    /// A rule for names beyond those that hold everywhere.
    ///
    /// # Errors
    /// - The rule, as the end of a sentence that begins with the name.
    fn check_name(&self, name: &LockName) -> Result<(), String> {
        let _ = name;
        Ok(())
    }

    /// The file that stands for a lock: the published record, or the coordination file where the
    /// profile has none.
    fn file_name(&self, name: &LockName) -> String;

    /// The lock for which a file stands; `None` for files of other kinds.
    fn name_of(&self, file: &str) -> Option<LockName>;

    /// The temporary file of the format's original tool, which a crash of that tool leaves behind
    /// and which a release is expected to remove.
    fn temporary(&self, name: &LockName) -> Option<String> {
        let _ = name;
        None
    }

    /// The format that other programs read, if there is one.
    fn record(&self) -> Option<&dyn Record> {
        None
    }
}

/// What the folder of a profile's locks has to be like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// It is somebody's project and never made.
    pub must_exist: bool,
    /// Nobody else may write in it, not even with the sticky bit; a folder that others can read
    /// deserves a warning.
    pub private: bool,
    /// It stands inside a work tree and tells git to leave it alone.
    pub ignored: bool,
}

/// A file format that other programs read and write.
///
/// # Contract
/// - Decoding what was encoded gives back every fact that decides: owner, times, process
///   identity, token.
/// - Decoding never guesses: what the format requires and the bytes lack makes them unreadable.
/// - Bytes of other programs that have what the format requires are understood.
pub trait Record: Debug {
    /// Writes the record of a granted claim. `previous` is the record that it replaces in the
    /// same holder's name, of which everything that this format does not define is kept.
    ///
    /// # Errors
    /// - A sentence, if the claim lacks something that the format requires.
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String>;

    /// Reads a record. The claim has ticket 0 (it stands before all others), is granted, and is
    /// of the kind `Foreign` or `Sealed`; its instants carry the wall clock alone.
    ///
    /// `now` is there for instants that cannot be true, and `here` for formats that name a
    /// process and no more of its machine than the host name.
    ///
    /// # Errors
    /// - What is wrong, as the end of a sentence.
    fn decode(
        &self,
        name: &LockName,
        bytes: &[u8],
        now: &Now,
        here: &Host,
    ) -> Result<Claim, String>;
}

/// How many characters of a command line are kept. Enough to recognise it by, short enough that
/// a thousand waiters fit.
pub const WHY_CHARS_MAX: usize = 200;

/// A command line or reason as a record keeps it: without control characters, and cut.
pub fn why(text: &str) -> String {
    let mut kept: String = text
        .chars()
        .take(WHY_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if kept.chars().count() < text.chars().count() {
        kept.push('…');
    }
    kept
}
