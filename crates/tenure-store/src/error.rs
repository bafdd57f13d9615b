//! Why a store could not do what a caller asked: each reason with its place, and its sentence.
//!
//! Exit codes and the words of documents for these reasons are the engine's (`envelope`).

use crate::advice::line_that_makes;

/// Why a store could not do what a caller asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refuses us access to the place.
    Permission {
        /// The path.
        place: String,
        /// What the store was doing.
        doing: &'static str,
    },
    /// The servers refuse this user: it has no right to do this, its password is wrong, or none was
    /// given.
    Denied {
        /// The servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// The servers' answer.
        why: String,
    },
    /// The machine's lock folder is not there, and only an administrator makes it.
    Missing {
        /// The path.
        place: String,
    },
    /// The place is not safe to keep locks in.
    Unsafe {
        /// The path.
        place: String,
        /// Why.
        why: String,
    },
    /// The file system does not promise working locks.
    FileSystem {
        /// The path.
        place: String,
        /// The kind of file system.
        kind: String,
        /// What that means for locks.
        why: &'static str,
    },
    /// The record cannot be read, and this call may not replace it.
    Unreadable {
        /// The record.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The lock file has a format that this build does not know. No call reads, writes, replaces or removes such a file.
    Format {
        /// The lock file.
        place: String,
        /// The number of its format.
        found: String,
        /// The number of the format that this build reads and writes.
        known: u32,
        /// The program that wrote the format, as far as the file says so.
        by: String,
    },
    /// The claim cannot be written down in the format that this profile publishes.
    Record {
        /// The record.
        place: String,
        /// What the claim lacks.
        why: String,
    },
    /// Each time that we were about to change the record, another program changed it first.
    Contended {
        /// The record.
        place: String,
    },
    /// The list has no room for one more claim. A lock file keeps 1 MiB of claims: some four thousand plain
    /// waiters.
    Full {
        /// The lock.
        place: String,
        /// How many claims stand in it.
        claims: usize,
    },
    /// Another process keeps the guard for longer than any transition takes.
    Stuck {
        /// The lock.
        place: String,
        /// How long this caller waited.
        waited_ms: u64,
        /// Process id of the keeper, if the system shows it.
        keeper: Option<u32>,
    },
    /// Other callers, of this process or of others, change the lock one after the other all the time.
    Crowded {
        /// The lock.
        place: String,
        /// How long this caller waited.
        waited_ms: u64,
    },
    /// The servers cannot be reached, or do not answer in time. It may be unknown whether they carried
    /// out the call; a caller that gets this error holds nothing.
    Unreachable {
        /// The servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// How it failed.
        why: String,
    },
    /// The handle belongs to another store, or the store breaks its contract. Then the caller is told
    /// nothing about the lock.
    Misused {
        /// The lock.
        place: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The system failed.
    Io {
        /// The path, or the servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// How it failed.
        r#source: std::io::Error,
    },
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Permission { place, doing } => write!(f, "{place}: permission denied ({doing})"),
            Self::Denied { place, doing, why } => {
                write!(f, "{place}: permission denied ({doing}): {why}")
            }
            Self::Missing { place } => write!(
                f,
                "{place} is not there; an administrator makes it once for the members of a group: {}",
                line_that_makes(place, "GROUP")
            ),
            Self::Unsafe { place, why } => {
                write!(f, "{place} is not a safe place for locks: {why}")
            }
            Self::FileSystem { place, kind, why } => write!(f, "{place} is on {kind}, {why}"),
            Self::Unreadable { place, why } => write!(f, "{place} cannot be read as a lock: {why}"),
            Self::Format {
                place,
                found,
                known,
                by,
            } => write!(
                f,
                "{place} has format {found} of lock files, written by {by}; this is tenure {}, which knows format {known}: use \
         one version of tenure for this lock",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Record { place, why } => write!(f, "{place}: {why}"),
            Self::Contended { place } => {
                write!(f, "{place}: another program changes it again and again")
            }
            Self::Full { place, claims } => {
                write!(f, "{place}: the queue is full ({claims} claims)")
            }
            Self::Stuck {
                place,
                waited_ms,
                keeper,
            } => write!(
                f,
                "{place}: {} has been in the middle of a change for {waited_ms} ms; it may be stopped",
                named(*keeper)
            ),
            Self::Crowded { place, waited_ms } => write!(
                f,
                "{place}: so many callers change it that this one had no turn for {waited_ms} ms"
            ),
            Self::Unreachable { place, doing, why } => write!(f, "{place}: {doing}: {why}"),
            Self::Misused { place, why } => write!(f, "{place}: {why}"),
            Self::Io {
                place,
                doing,
                source,
            } => write!(f, "{place}: {doing}: {source}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Permission { .. } | Self::Denied { .. } => true,
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// Errors of the system are in it, which nothing changes any more.
impl std::panic::UnwindSafe for StoreError {}
impl std::panic::RefUnwindSafe for StoreError {}

/// The process that keeps the guard of a lock, as a message names it.
fn named(keeper: Option<u32>) -> String {
    match keeper {
        Some(pid) => format!("PID {pid}"),
        None => "another process".to_owned(),
    }
}
