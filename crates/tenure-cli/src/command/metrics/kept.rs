//! Keeps counts in a file from call to call, and replaces files as a whole.

use super::counts::Counts;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::clean_path;
use crate::request::FileName;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;
use tenure_engine::audit::error_text;
use tenure_os::clock::{instant, nap, since};
use tenure_os::os::{self, Descriptor, Errno, Open};
use tenure_os::private::{self, new_name, open_own_folder};
use tenure_os::trust::{Contents, Named, OpenRefusal};

/// The layout of the file. Another number is another layout.
const VERSION: u32 = 1;

/// The largest file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// How long a call waits for another one that counts, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// The file, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Document<C> {
    tenure_metrics: u32,
    /// The audit that is counted, and the place of its locks.
    audit: String,
    place: String,
    counts: C,
}

/// What says of a file that this program wrote it.
#[derive(Debug, Deserialize)]
struct Head {
    tenure_metrics: u32,
}

/// Keeps the counts. As long as it lives, no other call counts into its file.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    file: &'a FileName,
    _lock: File,
    /// What the file has now.
    before: Option<String>,
    of: (String, String),
}

/// For whom a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    Owner,
    All,
}

impl<'a> Keeper<'a> {
    /// Waits until no other call counts into this file.
    pub(super) fn lock(file: &'a FileName, makes_folder: bool) -> Result<Self, Failure> {
        let named = if makes_folder {
            Named::ByNobody
        } else {
            Named::ByCaller
        };
        let folder = open_own_folder(&file.folder, named, makes_folder);
        let folder = folder.map_err(|(at, why)| refused(&at, &why))?;
        let Some((folder, _)) = folder else {
            return Err(not_written(&file.folder, &Errno::NOENT.into()));
        };
        let name = format!(".{}.lock", file.name);
        let failed = |errno: Errno| not_written(&file.folder.join(&name), &errno.into());
        let lock = os::open_file(&folder, &name, Open::Create).map_err(failed)?;
        let begun = instant();
        while !os::try_lock_file(&lock).map_err(failed)? {
            if since(begun) > PATIENCE {
                return Err(Failure::new(
                    Exit::Precondition,
                    "BUSY",
                    format!(
                        "another call has been counting into {} for {} s; nothing was counted",
                        clean_path(file.path()),
                        PATIENCE.as_secs()
                    ),
                ));
            }
            nap(PAUSE);
        }
        let before = text_of(&folder, file)?;
        Ok(Self {
            file,
            _lock: File::from(lock),
            before,
            of: Default::default(),
        })
    }

    /// The counts so far of this audit and of this place. What cannot be read is not begun anew: each count would fall, and all
    /// events that the audit still has would be counted once more.
    pub(super) fn counts(&mut self, audit: &str, place: &str) -> Result<Counts, Failure> {
        self.of = (audit.to_owned(), place.to_owned());
        let Some(text) = &self.before else {
            return Ok(Counts::default());
        };
        let path = clean_path(self.file.path());
        let anew = "remove it to count anew, or name another file with --state";
        let unread = |why: String| {
            Failure::new(
                Exit::General,
                "COUNTS_UNREADABLE",
                format!("{path} has no counts that can be read: {why}; {anew}"),
            )
        };
        let head: Head = serde_json::from_str(text).map_err(|error| unread(error.to_string()))?;
        if head.tenure_metrics != VERSION {
            return Err(unread("another version of tenure wrote it".to_owned()));
        }
        let read: Document<Counts> =
            serde_json::from_str(text).map_err(|error| unread(error.to_string()))?;
        if (&*read.audit, &*read.place) != (audit, place) {
            return Err(Failure::bad_arguments(format!(
                "{path} counts the audit {} of the locks in {}; {anew}",
                read.audit, read.place
            )));
        }
        Ok(read.counts)
    }

    /// Keeps the counts.
    pub(super) fn keep(&self, counts: &Counts) -> Result<(), Failure> {
        let (audit, place) = self.of.clone();
        let document = Document {
            tenure_metrics: VERSION,
            audit,
            place,
            counts,
        };
        let failed = |error: io::Error| not_written(&self.file.path(), &error);
        let mut text =
            serde_json::to_string(&document).map_err(|error| failed(io::Error::from(error)))?;
        text.push('\n');
        if self.before.as_ref() == Some(&text) {
            return Ok(());
        }
        replace(self.file, text.as_bytes(), Readers::Owner).map_err(failed)
    }
}

/// What the file has; `None` if there is none.
fn text_of(folder: &Descriptor, file: &FileName) -> Result<Option<String>, Failure> {
    let failed = |error: io::Error| {
        let path = clean_path(file.path());
        let why = error_text(&error);
        Failure::new(
            Exit::General,
            "COUNTS_UNREADABLE",
            format!("{path} cannot be read: {why}"),
        )
    };
    let opened = match os::open_file(folder, &file.name, Open::Read) {
        Ok(opened) => File::from(opened),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(errno.into())),
    };
    let mut text = String::new();
    let read = opened.take(BYTES_MAX).read_to_string(&mut text);
    read.map_err(failed)?;
    Ok(Some(text))
}

/// Gives a file this content. Readers find the old content or the new one, whole, also after a power loss.
pub(super) fn replace(file: &FileName, bytes: &[u8], readers: Readers) -> io::Result<()> {
    let folder = os::open_folder(&file.folder)?;
    let name = (&*new_name(&file.name), &*file.name);
    private::replace(&folder, name, bytes, |new| {
        #[cfg(unix)]
        if readers == Readers::All {
            use std::os::unix::fs::PermissionsExt as _;
            // The exporter is another user, and a strict umask must not keep it out.
            new.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        #[cfg(windows)]
        let _ = readers;
        new.sync_all()
    })?;
    // Without it, power loss may bring back the old file, which is as whole.
    let _ = os::sync_folder(&folder);
    Ok(())
}

/// The failure of a call that could not write a file.
pub(super) fn not_written(path: &Path, error: &io::Error) -> Failure {
    let (exit, code) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (Exit::Permission, "PERMISSION_DENIED")
        }
        _ => (Exit::General, "NOT_WRITTEN"),
    };
    let (path, why) = (clean_path(path), error_text(error));
    Failure::new(exit, code, format!("{path} cannot be written: {why}"))
}

fn refused(path: &Path, why: &OpenRefusal) -> Failure {
    match why {
        OpenRefusal::Distrust(why) => Failure::new(
            Exit::Permission,
            "PERMISSION_DENIED",
            format!("{}: {}", clean_path(path), why.why(Contents::Settings)),
        ),
        OpenRefusal::Making(errno) | OpenRefusal::Opening(errno) => {
            not_written(path, &(*errno).into())
        }
    }
}
