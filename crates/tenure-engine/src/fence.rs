//! Decides whether a request may still touch a resource: the resource keeps the highest fencing
//! token that it has seen, and a smaller one is refused.
//!
//! The resource's half of a fence. A lock gives each exclusive holder a higher token than the one before.
//! A holder that was paused and lost its lock comes with an old token, and a [`Guard`] knows a newer one
//! by then. No lock folder is needed, and no clock is asked.
//!
//! # Crash safety
//! The mark stands in one file, as a decimal number and a newline. A higher mark is written beside it, into
//! `FILE.next`, and takes its place by a rename. `FILE.next` is the lock of this change as well (flock(2),
//! which the kernel lets go of with its process). A process that wants to raise the mark locks it and makes
//! sure that its name still leads to it. Then it reads the mark again, writes, and renames the file away.
//! So there is at most one such file, and a process that is killed leaves
//!
//! - after it opened or locked the file: an empty file, locked by no process, which the next process uses;
//! - after it wrote the file, in part or whole, and after it synchronised it: the same. No process reads
//!   its content under this name, and the next one writes it anew;
//! - after the rename: the new mark. Each process synchronises the folder before it lets a request through
//!   by the mark, whichever process wrote it. So no power loss takes back a mark that has let a request
//!   through.
//!
//! Marks only rise, so a mark that is read without the lock decides for good which tokens it refuses.
//!
//! `tenure_core` and the engine say what a lock knows of a token. This module does not, and it does not
//! keep other processes from the resource between the question and the write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_os::clock::{instant, nap, since};
use tenure_os::os::{self, Descriptor, Errno, Facts, Open};
use tenure_os::trust::{self, Contents, Distrust, Named, OpenRefusal};

/// The highest token: what a JSON number holds exactly.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// How long a process waits for another process to change the mark. A change takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(10);

/// More bytes than a mark has.
const CONTENT_MAX: usize = 32;

/// A token as it is written: a decimal number from 1 to [`TOKEN_MAX`], without a sign, spaces or
/// leading zeros.
///
/// # Examples
/// ```
/// # use tenure_engine as tenure;
/// use tenure::fence::token;
/// assert_eq!(token("1795253412000017"), Some(1_795_253_412_000_017));
/// assert_eq!(token("0"), None);
/// assert_eq!(token("+5"), None);
/// ```
pub fn token(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let token = text.parse().ok().filter(|_| is_plain)?;
    (token <= TOKEN_MAX).then_some(token)
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Admission {
    /// The request may go on, and its token is the mark now.
    Recorded {
        /// The mark before, if there was one.
        before: Option<u64>,
    },
    /// The request may go on; its token was the mark already.
    Known,
    /// A newer token was seen. Nothing was changed.
    Refused {
        /// The mark.
        mark: u64,
    },
}

/// Why a request could not be answered. It must not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError {
    /// The system refuses this process.
    Permission {
        /// What was touched.
        place: String,
        /// What was tried.
        doing: &'static str,
    },
    /// Another user could lower the mark.
    Unsafe {
        /// What was looked at.
        place: String,
        /// Why.
        why: String,
    },
    /// The file system does not promise working locks.
    FileSystem {
        /// The folder.
        place: String,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The file holds no mark. It is not taken for a low one.
    Unreadable {
        /// The file.
        place: String,
    },
    /// Another process is in the middle of a change for longer than one takes.
    Stuck {
        /// The file.
        place: String,
        /// How long this process waited.
        waited_ms: u64,
    },
    /// The system failed.
    Io {
        /// What was touched.
        place: String,
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        r#source: std::io::Error,
    },
}

impl std::fmt::Display for GuardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Permission { place, doing } => write!(f, "{place}: permission denied ({doing})"),
            Self::Unsafe { place, why } => write!(f, "{place} is no safe guard: {why}"),
            Self::FileSystem { place, kind } => write!(
                f,
                "{place} is on {kind}, where locks may not hold between machines; choose a local folder, \
         or say --allow-network-fs if you know that they do"
            ),
            Self::Unreadable { place } => write!(
                f,
                "{place} cannot be read as a guard: it holds something else than one token; write the \
         highest token that the resource has seen into it"
            ),
            Self::Stuck { place, waited_ms } => write!(
                f,
                "{place}: another process has been in the middle of a change for {waited_ms} ms; it may \
         be stopped"
            ),
            Self::Io {
                place,
                doing,
                source,
            } => write!(f, "{place}: {doing}: {source}"),
        }
    }
}

impl std::error::Error for GuardError {}

/// The high-water mark of one resource.
///
/// # Examples
/// ```
/// # use tenure_engine as tenure;
/// use tenure::fence::{Admission, Guard};
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("store.guard");
/// let guard = Guard::open(&file, false)?;
/// assert_eq!(guard.admit(7)?, Admission::Recorded { before: None });
/// assert_eq!(guard.admit(9)?, Admission::Recorded { before: Some(7) });
/// assert_eq!(guard.admit(7)?, Admission::Refused { mark: 9 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Guard {
    folder: Descriptor,
    name: OsString,
    next: OsString,
    path: PathBuf,
}

impl Guard {
    /// Opens the folder of a guard. The file need not be there; its folder does.
    ///
    /// # Errors
    /// - [`GuardError::Unsafe`] if the path names no file, or all users may replace files there.
    /// - [`GuardError::FileSystem`] on a network file system, unless `allow_network`.
    /// - [`GuardError::Permission`], [`GuardError::Io`] if it cannot be opened.
    pub fn open(path: &Path, allow_network: bool) -> Result<Self, GuardError> {
        let name = path.file_name().ok_or_else(|| GuardError::Unsafe {
            place: path.display().to_string(),
            why: "it names no file".to_owned(),
        })?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let failed = |errno| fault(parent, "opening the guard's folder", errno);
        let (folder, _) = trust::folder(parent, Named::ByCaller).map_err(|why| match why {
            OpenRefusal::Distrust(why) => refused(parent, &why),
            OpenRefusal::Making(errno) | OpenRefusal::Opening(errno) => failed(errno),
        })?;
        if let Some(kind) = os::remote_kind_of(&folder).map_err(failed)?
            && !allow_network
        {
            return Err(GuardError::FileSystem {
                place: parent.display().to_string(),
                kind,
            });
        }
        let mut next = name.to_owned();
        next.push(".next");
        Ok(Self {
            folder,
            name: name.to_owned(),
            next,
            path: path.to_owned(),
        })
    }

    /// Decides about a request and remembers its token.
    ///
    /// # Errors
    /// - [`GuardError::Unreadable`] if the file holds something else than a token.
    /// - [`GuardError::Unsafe`] if the file is a link, no regular file, or open to others.
    /// - [`GuardError::Stuck`] if another process does not end its change.
    /// - [`GuardError::Permission`], [`GuardError::Io`] if the system fails.
    ///
    /// # Crash safety
    /// The old mark stands, or the new one; see the [module](self).
    pub fn admit(&self, token: u64) -> Result<Admission, GuardError> {
        if let Some(decided) = self.decided(token, self.mark()?)? {
            return Ok(decided);
        }
        let next = self.lock()?;
        // The process that had the lock before may have raised the mark.
        let before = self.mark()?;
        if let Some(decided) = self.decided(token, before)? {
            os::remove(&self.folder, &self.next)
                .map_err(|errno| self.fault("removing what is not needed", errno))?;
            return Ok(decided);
        }
        write(&next, token).map_err(|errno| self.fault("writing the new mark", errno))?;
        os::rename(&self.folder, &self.next, &self.folder, &self.name)
            .map_err(|errno| self.fault("putting the new mark in place", errno))?;
        self.sync()?;
        Ok(Admission::Recorded { before })
    }

    /// What a mark decides by itself: everything except whether a higher token becomes the new mark.
    fn decided(&self, token: u64, mark: Option<u64>) -> Result<Option<Admission>, GuardError> {
        Ok(match mark {
            Some(mark) if token < mark => Some(Admission::Refused { mark }),
            Some(mark) if token == mark => {
                // The process that wrote it may have died before this.
                self.sync()?;
                Some(Admission::Known)
            }
            Some(_) | None => None,
        })
    }

    /// The mark, if there is one.
    fn mark(&self) -> Result<Option<u64>, GuardError> {
        let Some((fd, facts)) = self.file(&self.name, Open::Read)? else {
            return Ok(None);
        };
        if facts.others_may_write() {
            return Err(refused(&self.path, &Distrust::OthersMayWrite));
        }
        let mut bytes = [0; CONTENT_MAX];
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match os::read(&fd, rest) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault("reading the mark", errno)),
            }
        }
        let text = bytes
            .get(..length)
            .and_then(|bytes| str::from_utf8(bytes).ok());
        let mark = text.and_then(|text| token(text.strip_suffix('\n').unwrap_or(text)));
        match mark {
            Some(mark) => Ok(Some(mark)),
            None => Err(GuardError::Unreadable {
                place: self.path.display().to_string(),
            }),
        }
    }

    /// Locks the file that becomes the guard, and makes sure that its name still leads to it.
    fn lock(&self) -> Result<Descriptor, GuardError> {
        let began = instant();
        let mut pause = Duration::from_millis(1);
        loop {
            let waited = since(began);
            if waited >= PATIENCE {
                return Err(GuardError::Stuck {
                    place: self.path.display().to_string(),
                    waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                });
            }
            let Some((fd, facts)) = self.file(&self.next, Open::Create)? else {
                return Err(self.fault("making the new mark", Errno::NOENT));
            };
            match os::try_lock_file(&fd) {
                Ok(true) if self.leads_to(&facts)? => return Ok(fd),
                // The file became the guard, or was removed, before this process had the lock.
                Ok(true) | Err(Errno::INTR) => {}
                Ok(false) => {
                    nap(pause);
                    pause = (pause * 2).min(PAUSE);
                }
                Err(errno) => return Err(self.fault("locking the guard", errno)),
            }
        }
    }

    fn leads_to(&self, facts: &Facts) -> Result<bool, GuardError> {
        match os::facts_at(&self.folder, &self.next) {
            Ok(now) => Ok(now.inode() == facts.inode()),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.fault("looking at the guard again", errno)),
        }
    }

    /// Opens one of the two files, if it is there and belongs to this user alone.
    fn file(&self, name: &OsString, how: Open) -> Result<Option<(Descriptor, Facts)>, GuardError> {
        let fd = match os::open_file(&self.folder, name, how) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => {
                let why = Distrust::of_file(errno).map(|why| refused(&self.path, &why));
                return Err(why.unwrap_or_else(|| self.fault("opening the guard", errno)));
            }
        };
        let facts = os::facts(&fd).map_err(|errno| self.fault("looking at the guard", errno))?;
        let judged = trust::file(&facts, false).and_then(|()| trust::ours(&facts));
        judged.map_err(|why| refused(&self.path, &why))?;
        Ok(Some((fd, facts)))
    }

    fn sync(&self) -> Result<(), GuardError> {
        os::sync_folder(&self.folder).map_err(|errno| self.fault("making the mark last", errno))
    }

    fn fault(&self, doing: &'static str, errno: Errno) -> GuardError {
        fault(&self.path, doing, errno)
    }
}

fn refused(place: &Path, why: &Distrust) -> GuardError {
    GuardError::Unsafe {
        place: place.display().to_string(),
        why: why.why(Contents::Guard),
    }
}

/// Writes the new mark so that it is on the disk before it has its name.
fn write(next: &Descriptor, token: u64) -> Result<(), Errno> {
    let text = format!("{token}\n");
    os::keep_to_owner(next)?;
    os::cut(next, 0)?;
    let mut written = 0;
    while let Some(rest) = text
        .as_bytes()
        .get(written..)
        .filter(|rest| !rest.is_empty())
    {
        match os::write_at(next, rest, written as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    os::sync(next)
}

fn fault(path: &Path, doing: &'static str, errno: Errno) -> GuardError {
    let place = path.display().to_string();
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => GuardError::Permission { place, doing },
        errno => GuardError::Io {
            place,
            doing,
            source: errno.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_written_in_one_way() {
        for (text, number) in [
            ("1", Some(1)),
            ("9007199254740991", Some(TOKEN_MAX)),
            ("9007199254740992", None),
            ("99999999999999999999", None),
            ("0", None),
            ("007", None),
            ("+5", None),
            ("-5", None),
            (" 5", None),
            ("5\n", None),
            ("5.0", None),
            ("٥", None),
            ("", None),
        ] {
            assert_eq!(token(text), number, "{text:?}");
        }
    }
}
