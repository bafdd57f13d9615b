//! What happened to locks, kept as lines that other programs read: JSON Lines, one event a line.
//!
//! [`Record`] is one event and knows its line; [`AuditLog`] says where lines go and appends them;
//! [`Events`] reads a log back, oldest first; [`Follower`] goes on from there, and a [`Bookmark`] lets a later process.
//! [`History`] folds events into holds and waits.
//!
//! An audit never stops a caller from giving a lock back. A writer that fails gets an error to warn about,
//! after a bounded time at the latest.
//!
//! The code that acts on a lock decides when an event is worth a line, and what becomes of an error. Old
//! files are not removed here, apart from what rotation drops.
//!
//! Lines stand in three streams ([`Stream`]), each with a bound of its own: what happens often drops nothing of what
//! happens seldom.

mod bookmark;
mod entry;
mod folder;
mod follow;
mod history;
mod read;
mod record;
mod resume;
mod span;
mod stream;
mod text;
mod totals;
mod write;

pub use bookmark::Bookmark;
pub use entry::Entry;
pub use follow::Follower;
pub use history::{
    History, HoldBegin, HoldOutcome, Incident, Participant, Passage, PastHold, PastWait,
    WaitOutcome,
};
pub use read::{Events, Filter};
pub use record::{
    Behind, Ending, Grant, LINE_BYTES_MAX, Occasion, Party, RAW_BYTES_MAX, Record, Releaser,
    StealReason, error_text, holder_facts,
};
pub use stream::Stream;
pub use tenure_store::profile::Layout;
pub use totals::{BOUNDS_MS, Histogram, Totals};

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_os::trust::Named;

/// The file of [`Stream::Ordinary`] in a folder of one user.
pub const FILE: &str = "audit.jsonl";

/// What the files of [`Layout::PerRequest`] end with.
const SUFFIX: &str = ".jsonl";

/// How large the file of [`Stream::Ordinary`] becomes before it is rotated, unless said otherwise. Those of the other streams
/// become a tenth of it.
pub const ROTATE_BYTES: u64 = 10 << 20;

/// How many rotated files are kept, unless said otherwise.
pub const ROTATED_KEPT: u32 = 3;

/// How long a writer waits for the file while another process writes or rotates. Both take microseconds; a
/// process that takes longer was stopped in the middle, and is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Patience where several users write: each may lock what it may read, and what a holder waits for its line adds to its hold.
const PATIENCE_AMONG_OTHERS: Duration = Duration::from_millis(100);

/// The events that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventName {
    /// A lock was granted.
    LockAcquired,
    /// A lock was taken over without a release by its holder.
    LockStolen,
    /// A lock was given back.
    LockReleased,
    /// A lock should have been given back, but its file could not be removed.
    LockReleaseFailed,
    /// Several heartbeats in a row could not be written.
    HeartbeatFailed,
    /// The work of a run with a dead supervisor was ended.
    OrphanEnded,
    /// A run was skipped because the lock was held.
    LockSkipped,
    /// A caller did not get the lock.
    LockRefused,
    /// A holder found that the lock was not its own any more.
    LockLost,
    /// A holder, or a waiter, gave up its place because another caller asked for that.
    LockSuperseded,
    /// A caller asked holders to stop.
    LockCancelled,
}

impl EventName {
    /// All of them, in the order of a lock's life.
    pub const ALL: [Self; 11] = [
        Self::LockAcquired,
        Self::LockStolen,
        Self::LockReleased,
        Self::LockReleaseFailed,
        Self::HeartbeatFailed,
        Self::OrphanEnded,
        Self::LockSkipped,
        Self::LockRefused,
        Self::LockLost,
        Self::LockSuperseded,
        Self::LockCancelled,
    ];

    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockAcquired => "lock_acquired",
            Self::LockStolen => "lock_stolen",
            Self::LockReleased => "lock_released",
            Self::LockReleaseFailed => "lock_release_failed",
            Self::HeartbeatFailed => "heartbeat_failed",
            Self::OrphanEnded => "orphan_ended",
            Self::LockSkipped => "lock_skipped",
            Self::LockRefused => "lock_refused",
            Self::LockLost => "lock_lost",
            Self::LockSuperseded => "lock_superseded",
            Self::LockCancelled => "lock_cancelled",
        }
    }

    /// The event of a word in the log.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

/// The events that are recorded, and how much of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recording {
    /// The events of [`Stream::Incidents`] alone: another caller's holder was promised that these are recorded.
    Incidents,
    /// All of them.
    #[default]
    All,
    /// All of them, with the arguments of commands.
    Arguments,
}

impl Recording {
    /// All of them, from the least on.
    pub const ALL: [Self; 3] = [Self::Incidents, Self::All, Self::Arguments];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incidents => "incidents",
            Self::All => "all",
            Self::Arguments => "arguments",
        }
    }

    /// The one of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|recording| recording.as_str() == word)
    }
}

/// Why an audit cannot be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuditError {
    /// The system refuses.
    Io {
        /// The file or folder.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// How it failed.
        r#source: io::Error,
    },
    /// The folder or a file in it cannot be trusted.
    Unsafe {
        /// The file or folder.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

impl std::fmt::Display for AuditError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io {
                place,
                doing,
                source,
            } => write!(f, "{place}: {doing}: {}", error_text(source)),
            Self::Unsafe { place, why } => write!(f, "{place}: {why}"),
        }
    }
}

impl std::error::Error for AuditError {}

/// Where an audit is, and whether the caller named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    /// The folder of the locks that it lies in: from there on no link is followed.
    within: Option<PathBuf>,
    /// Whether the folder around is not for locks alone.
    is_of_others: bool,
    named: Named,
}

impl Place {
    /// Beside the locks in a folder: `dir` lies below `locks`, and is never reached from there through a
    /// link. If it does not lie below, it is a folder like any other.
    ///
    /// Where every user of the machine may make files, each user's locks are its own, and so is its audit: the folder has the
    /// user's number behind this name.
    pub fn below(locks: PathBuf, dir: PathBuf) -> Self {
        let within = dir
            .strip_prefix(&locks)
            .is_ok_and(|rest| rest != Path::new(""));
        Self {
            within: within.then_some(locks),
            ..Self::from(dir)
        }
    }

    /// The folder around it is not for locks alone. Where the first event makes that folder, git is not told to ignore it.
    #[must_use]
    pub fn among_others(mut self) -> Self {
        self.is_of_others = true;
        self
    }

    /// No caller named it: a search or a default led there. It is used if it belongs to the caller or to
    /// root, or is made for several users; otherwise it is [`AuditError::Unsafe`].
    #[must_use]
    pub fn found(mut self) -> Self {
        self.named = Named::ByNobody;
        self
    }

    /// The folder, before anybody has looked for whom the one around it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The place as the folder around it wants it.
    fn settled(&self) -> Cow<'_, Self> {
        #[cfg(unix)]
        if let Some(locks) = &self.within
            && let Some(name) = self.dir.file_name().and_then(|name| name.to_str())
            && tenure_os::os::facts_of(locks).is_ok_and(|facts| facts.all_may_write())
        {
            let own = format!("{name}.{}", tenure_os::os::our_number());
            return Cow::Owned(Self {
                dir: self.dir.with_file_name(own),
                ..self.clone()
            });
        }
        Cow::Borrowed(self)
    }
}

/// A folder that the caller names, which may be a link: naming it is consent.
impl From<PathBuf> for Place {
    fn from(dir: PathBuf) -> Self {
        Self {
            dir,
            within: None,
            is_of_others: false,
            named: Named::ByCaller,
        }
    }
}

impl From<&PathBuf> for Place {
    fn from(dir: &PathBuf) -> Self {
        dir.clone().into()
    }
}

impl From<&Path> for Place {
    fn from(dir: &Path) -> Self {
        dir.to_owned().into()
    }
}

/// A log: a folder and the way its files are laid out.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_engine::audit::{AuditLog, Events, Filter, Layout, Occasion, Record};
/// use tenure_engine::tenure_core::{LockName, RequestId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let dir = folder.path().join("audit");
/// let (lock, id) = (LockName::new("deploy")?, RequestId::new("req_1")?);
/// let occasion = Occasion::new(&lock, &id, 1_770_458_400_000);
/// let log = AuditLog::new(dir.clone(), Layout::OneFile);
/// log.append(&Record::lock_acquired(occasion, &dir, Duration::from_secs(900), 7))?;
/// let events: Vec<_> = Events::open(&dir, Filter::default())?.collect();
/// assert_eq!(events.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AuditLog {
    place: Place,
    layout: Layout,
    rotate_bytes: u64,
    kept: u32,
    patience: Duration,
}

impl AuditLog {
    /// A log in this folder, which the first event makes (0700, parents too).
    pub fn new(place: impl Into<Place>, layout: Layout) -> Self {
        Self {
            place: place.into(),
            layout,
            rotate_bytes: ROTATE_BYTES,
            kept: ROTATED_KEPT,
            patience: PATIENCE,
        }
    }

    /// Rotates the file of [`Stream::Ordinary`] once it has this many bytes, and keeps so many older ones (at least
    /// one). The files of the other streams have a tenth of the bytes.
    #[must_use]
    pub fn rotating(mut self, bytes: u64, kept: u32) -> Self {
        self.rotate_bytes = bytes;
        self.kept = kept.max(1);
        self
    }

    /// Waits no longer than this for a file that another process keeps, in place of a tenth of a second. For a
    /// caller whose other work does not wait either.
    #[must_use]
    pub fn waiting_at_most(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Tells git to leave the folder alone, unless it was told something already.
    ///
    /// # Errors
    /// - [`AuditError`] if the folder cannot be opened or written.
    pub fn keep_out_of_git(&self) -> Result<(), AuditError> {
        match folder::Folder::open(&self.place.settled(), false)? {
            Some(folder) => folder.ignore_all(),
            None => Ok(()),
        }
    }

    /// Looks whether the folder is there and can be used, or can be made by the first event. Makes nothing.
    ///
    /// # Errors
    /// - [`AuditError`] as a writer gets it.
    #[cfg(unix)]
    pub fn look(&self) -> Result<bool, AuditError> {
        let place = self.place.settled();
        let Some(folder) = folder::Folder::open(&place, false)? else {
            folder::could_make(&place)?;
            return Ok(false);
        };
        folder.may_write()?;
        Ok(true)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The file that a record goes to, in a folder of one user.
    pub fn path_of(&self, record: &Record) -> PathBuf {
        if self.is_of_request(record) {
            self.dir().join(record.date()).join(record.file_name())
        } else {
            self.dir().join(record.stream().file(None))
        }
    }

    /// Whether a record stands in the file of its request.
    fn is_of_request(&self, record: &Record) -> bool {
        self.layout == Layout::PerRequest && record.stream() != Stream::Refusals
    }

    /// How large the file of a stream becomes.
    fn bytes_of(&self, stream: Stream) -> u64 {
        match stream {
            Stream::Ordinary => self.rotate_bytes,
            Stream::Incidents | Stream::Refusals => self.rotate_bytes / 10,
        }
    }
}
