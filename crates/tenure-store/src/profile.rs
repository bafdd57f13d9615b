//! A profile: one policy row, one file format. A store is given one, and knows nothing of it but this trait.
//!
//! Four of the five profiles publish: while a claim holds, a record in the format of their system stands at
//! the path that other programs look at. The record is the truth about the holder. The coordination file
//! beside it keeps what the format has no place for (the queue, past holds, the rising counter). The file
//! store decides how a record is created, replaced and removed without ever overwriting another program's.
//! The profile decides what stands in it.
//!
//! [`Native`] publishes none. The formats of other systems, and who chooses among them, are the engine's (`formats`).

mod native;

pub use native::Native;
pub(crate) use native::SUFFIX;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use tenure_core::{Claim, Holder, Host, LockName, Now, Policy};

/// Our folder beside published records. It keeps what their formats have no place for.
pub const LEDGER: &str = ".tenure";

/// The folder of an audit, below that of the locks.
const AUDIT_FOLDER: &str = "audit";

/// A system's rules and format.
pub trait Profile: Debug + Send + Sync {
    /// The row by which locks are judged and decided.
    fn policy(&self) -> Policy;

    /// The folder of the locks below the place that the caller names.
    fn folder(&self, place: &Path) -> PathBuf {
        place.to_owned()
    }

    /// What that folder has to be like.
    fn place(&self) -> FolderRules {
        FolderRules::default()
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

    /// The audit's place below the place that the caller names, if no other was named.
    fn audit_folder(&self, place: &Path) -> PathBuf {
        place.join(AUDIT_FOLDER)
    }

    /// How the audit is laid out.
    fn audit_layout(&self) -> Layout {
        Layout::OneFile
    }

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

/// The file of the audit that an event goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `<dir>/<YYYY-MM-DD>/<request_id>.jsonl`, the date being the record's own, in UTC. What was refused stands in the file
    /// of its stream all the same: those who are refused come again and again, each time under another id.
    PerRequest,
    /// A file for each stream of events, rotated by size.
    OneFile,
}

/// What the folder of a profile's locks has to be like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FolderRules {
    /// Whether the folder is a user's project, and never made.
    pub must_exist: bool,
    /// No other user may write in it, not even with the sticky bit. A folder that others can read deserves
    /// a warning.
    pub private: bool,
    /// Whether the folder stands inside a work tree and tells git to leave it alone.
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
    /// Writes the record of a granted claim. `previous` is the record of the same holder that it replaces;
    /// everything in it that this format does not define is kept.
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

    /// Whether a renewal stands in the record. Where it does not, the list alone knows of renewals.
    fn is_renewed(&self) -> bool {
        true
    }

    /// What a record that breaks a rule still says of how long its holder counts; `None` if it says nothing, or the
    /// format does not ask.
    fn signs(&self, _bytes: &[u8], _now: &Now) -> Option<Signs> {
        None
    }
}

/// What can be read of a record that breaks a rule. At least one of both can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signs {
    /// Instant of the last heartbeat, in milliseconds since the epoch, if it can be true.
    pub renewed_ms: Option<u64>,
    /// Ttl of the holder, in milliseconds.
    pub ttl_ms: Option<u64>,
}

/// The fact that names the run of a session.
pub const RUN: &str = "runId";

/// The fact that a record's time lies in the future.
pub const FUTURE: &str = "future";

/// The fact that a record has no date that can be read, and got the date of the look.
pub const UNDATED: &str = "undated";

/// The fact that says what in a record keeps its holder from being judged.
pub const UNJUDGED: &str = "unjudged";

/// The id by which people know a holder: its request id, or what its record names instead where
/// that is not unique (a session's run).
pub fn known_as(holder: &Holder) -> &str {
    let named = holder.fact(RUN);
    named.unwrap_or(holder.request_id.as_str())
}

/// The fact that marks a claim which can only end without a release: its process became its command, and no
/// process stays that could release.
pub const ENDS_WITHOUT_RELEASE: &str = "exec";

/// Whether a claim that no process stands behind any more has ended as it had to. Then it is free, and was
/// not left behind.
pub fn ends_without_release(claim: &Claim) -> bool {
    claim.holder.fact(ENDS_WITHOUT_RELEASE).is_some()
}

/// Whether the record of a claim has a time that is still to come.
pub fn is_dated_ahead(claim: &Claim) -> bool {
    claim.holder.fact(FUTURE).is_some()
}

/// The fact of a claim whose hold no power cut ends: while it stands, each change of the lock is on the disk before it is
/// answered.
pub const DURABLE: &str = "tenure:durable";

/// Whether a claim holds, and no power cut may end that.
pub fn is_durable(claim: &Claim) -> bool {
    claim.token.is_some() && claim.holder.fact(DURABLE).is_some()
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
