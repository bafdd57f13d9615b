//! Reads and replaces single files of a host, so that a process that dies at any instant leaves the old file or
//! the new one, whole.
//!
//! A file keeps its mode and its owner, and a symbolic link stays one: what it leads to is replaced. The caller
//! has to own the file and the nearest folder that is there. Root is no exception: a file that root made in
//! another user's project could not be changed by that user, and a link that the user plants there would lead
//! root to any file of the machine ([decision 0068](../../../../docs/internals/decisions/0068-agent-install.md)).
//!
//! # Crash safety
//! The new text is written to a file beside the old one, under one fixed name, and synced. Then both names are
//! exchanged, and what came out is looked at. If it is not what was read, another program changed the file
//! meanwhile: both are exchanged back, and the caller begins anew. A death leaves at most the file beside. The next
//! call removes it if its text is known; another program's text is put back, or kept under another name. All calls
//! of one user hold one lock (`receipts`).

use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::clean_path;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tenure_os::regular;
use tenure_os::trust::{self, Contents, Distrust};

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// How many texts of other programs are kept beside one file.
const KEPT_MAX: u32 = 99;

/// How many links are followed on the way to a file.
const LINKS_MAX: usize = 40;

/// A file of a host, which may not be there.
#[derive(Debug)]
pub(in crate::command) struct Target {
    /// As it is named.
    pub(super) named: PathBuf,
    /// Where links lead.
    pub(in crate::command) path: PathBuf,
    pub(in crate::command) text: Option<String>,
    facts: Option<Metadata>,
}

/// Why a file was not replaced.
#[derive(Debug)]
pub(in crate::command) enum Hindered {
    /// The file is no longer what was read.
    Changed,
    Failed(io::Error),
    /// The file was replaced, and a loss of power may bring the old one back.
    Unsynced(io::Error),
}

/// What became of a file that stood beside, under the name that this program uses.
#[derive(Debug)]
pub(in crate::command) enum Settled {
    Clear,
    /// The text was the only one there was: the file is to be read anew.
    PutBack,
    /// Another program's text has this name now.
    Kept(PathBuf),
}

impl From<io::Error> for Hindered {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Hindered {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

/// The refusal of a file.
fn refused(path: &Path, why: &str) -> Failure {
    let path = clean_path(path);
    Failure::bad_arguments(format!("{path} is left as it is: {why}"))
}

/// The answer to a step that the system refuses.
pub(in crate::command) fn failed(path: &Path, what: &str, error: &io::Error) -> Failure {
    let (exit, code) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (Exit::Permission, "PERMISSION_DENIED")
        }
        _ => (Exit::General, "IO_ERROR"),
    };
    let path = clean_path(path);
    Failure::new(exit, code, format!("{path} cannot be {what}: {error}"))
}

/// The text of a file; `None` if there is none.
pub(super) fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => match error.kind() {
            ErrorKind::InvalidInput => {
                Err(refused(path, &Distrust::NoFile.why(Contents::Settings)))
            }
            ErrorKind::FileTooLarge => Err(refused(path, "it is larger than 8 MiB")),
            ErrorKind::InvalidData => Err(refused(path, "it is no UTF-8 text")),
            _ => Err(failed(path, "read", &error)),
        },
    }
}

/// The text of a file. Nothing is waited for, whatever another program has put there.
fn read(path: &Path) -> io::Result<String> {
    regular::text(path, FILE_BYTES_MAX)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound)
}

impl Target {
    /// Looks at a file that is to be changed.
    ///
    /// # Errors
    /// - It is no text, or not the caller's.
    /// - A link or a folder on the way, from the root of the project or the home folder on, is another user's.
    pub(in crate::command) fn at(named: &Path, root: &Path) -> Result<Self, Failure> {
        let path = resolved(named, root)?;
        let above = path.ancestors().skip(1).find(|above| above.exists());
        if let Some(above) = above {
            let facts = fs::metadata(above).map_err(|error| failed(above, "read", &error))?;
            if !facts.is_dir() {
                return Err(refused(named, "a file stands where its folder should be"));
            }
            own(above, &facts)?;
        }
        let facts = match fs::metadata(&path) {
            Ok(facts) if !facts.is_file() => {
                return Err(refused(named, &Distrust::NoFile.why(Contents::Settings)));
            }
            Ok(facts) => {
                own(named, &facts)?;
                Some(facts)
            }
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(failed(named, "read", &error)),
        };
        Ok(Self {
            text: text_of(&path)?,
            named: named.to_owned(),
            path,
            facts,
        })
    }

    /// Stands for a file that cannot be looked at, and stays as it is.
    pub(super) fn unread(named: &Path) -> Self {
        Self {
            named: named.to_owned(),
            path: named.to_owned(),
            text: None,
            facts: None,
        }
    }

    /// The name of the file beside it, for what is not finished.
    fn beside(&self) -> PathBuf {
        beside(&self.path)
    }

    /// Removes what a call left behind in a file that others write: a death, or an exchange that could not be
    /// taken back, may have left their bytes beside it.
    pub(in crate::command) fn settle(
        &self,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Settled, Failure> {
        let beside = self.beside();
        if beside.symlink_metadata().is_err() {
            return Ok(Settled::Clear);
        }
        let fails = |error: &io::Error| failed(&beside, "put aside", error);
        if read(&beside).is_ok_and(|text| text.is_empty() || is_known(&text)) {
            remove(&beside).map_err(|error| fails(&error))?;
            return Ok(Settled::Clear);
        }
        if self.facts.is_none() {
            return match rename_new(&beside, &self.path) {
                Ok(()) | Err(Errno::EXIST) => Ok(Settled::PutBack),
                Err(errno) => Err(fails(&errno.into())),
            };
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        for number in 1..=KEPT_MAX {
            let kept = self
                .path
                .with_file_name(format!("{name}.tenure-kept-{number}"));
            match rename_new(&beside, &kept) {
                Ok(()) => return Ok(Settled::Kept(kept)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(fails(&errno.into())),
            }
        }
        Err(fails(&ErrorKind::AlreadyExists.into()))
    }

    /// The folders that have to be made for it, the outermost first.
    pub(super) fn missing_folders(&self) -> Vec<PathBuf> {
        let above = self.path.ancestors().skip(1);
        let mut missing: Vec<_> = above
            .take_while(|folder| !folder.exists())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        missing
    }

    /// Makes the file have this text, or removes it, if it still is as it was read.
    pub(in crate::command) fn replace(&mut self, new: Option<&str>) -> Result<(), Hindered> {
        let done = match (new, self.facts.is_some()) {
            (Some(new), _) => self.write(new),
            (None, true) => self.remove(),
            (None, false) => return Ok(()),
        };
        if let Err(Hindered::Changed | Hindered::Failed(_)) = done {
            return done;
        }
        self.text = new.map(str::to_owned);
        self.facts = fs::metadata(&self.path).ok();
        done
    }

    fn write(&self, new: &str) -> Result<(), Hindered> {
        for folder in self.missing_folders() {
            make_folder(&folder, 0o777)?;
        }
        let beside = self.beside();
        match write_beside(&beside, new, self.facts.as_ref()) {
            // The file is not this call's, and the next turn looks at it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(Hindered::Changed);
            }
            other => other?,
        }
        let done = match &self.text {
            Some(old) => exchange(&beside, &self.path, old),
            None => match rename_new(&beside, &self.path) {
                Err(Errno::EXIST) => Err(Hindered::Changed),
                other => other.map_err(Hindered::from),
            },
        };
        // What another program wrote between two exchanges stays for `settle`.
        let left = read(&beside).ok();
        if left.is_some() && (left.as_deref() == Some(new) || left == self.text) {
            let _ = remove(&beside);
        }
        done?;
        sync_folder_of(&self.path).map_err(Hindered::Unsynced)
    }

    fn remove(&self) -> Result<(), Hindered> {
        let beside = self.beside();
        let put_back = |why: Hindered| match rename_new(&beside, &self.path) {
            Ok(()) | Err(Errno::EXIST) => why,
            Err(errno) => errno.into(),
        };
        match rename_new(&self.path, &beside) {
            Err(Errno::EXIST | Errno::NOENT) => return Err(Hindered::Changed),
            other => other?,
        }
        if read(&beside).ok() != self.text {
            return Err(put_back(Hindered::Changed));
        }
        remove(&beside).map_err(|error| put_back(error.into()))?;
        sync_folder_of(&self.path).map_err(Hindered::Unsynced)
    }
}

/// Where a name leads. Below `root`, a link has to be the caller's, and so has each folder on the way, and the
/// folder to which a link leads: otherwise another user would say which file of the caller's is changed.
fn resolved(named: &Path, root: &Path) -> Result<PathBuf, Failure> {
    let mut path = root.to_owned();
    let Ok(below) = named.strip_prefix(root) else {
        return Err(refused(named, "it lies outside the folder it belongs to"));
    };
    match fs::metadata(root) {
        Ok(facts) => own(root, &facts)?,
        Err(error) if is_missing(&error) => return Ok(named.to_owned()),
        Err(error) => return Err(failed(root, "read", &error)),
    }
    let words = |path: &Path| -> Vec<_> {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut rest = words(below);
    // While more than this is left, the way is that of a link, and its folders may be the system's.
    let mut named_left = rest.len();
    let mut links = 0;
    while let Some(word) = rest.pop() {
        if word == ".." {
            path = path
                .canonicalize()
                .map_err(|error| failed(&path, "read", &error))?;
            path.pop();
            continue;
        }
        let next = path.join(&word);
        match fs::symlink_metadata(&next) {
            Ok(facts) if facts.is_symlink() => {
                own(&next, &facts)?;
                links += 1;
                let leads = fs::read_link(&next).ok().filter(|_| next.exists());
                let Some(leads) = leads.filter(|_| links <= LINKS_MAX) else {
                    return Err(refused(&next, "it is a link that leads nowhere"));
                };
                named_left = named_left.min(rest.len());
                rest.extend(words(&leads));
            }
            Ok(facts) => {
                path = next;
                if facts.is_dir() && rest.len() <= named_left {
                    own(&path, &facts)?;
                }
            }
            Err(error) if is_missing(&error) => path = next,
            // A file stands where a folder should be; the caller says so.
            Err(error) if error.kind() == ErrorKind::NotADirectory => path = next,
            Err(error) => return Err(failed(&next, "read", &error)),
        }
    }
    if links == 0 {
        return Ok(named.to_owned());
    }
    // A file has a single receipt, whatever links lead to it.
    Ok(path.canonicalize().unwrap_or(path))
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tenure-new"))
}

/// Removes a file with a name that only this program uses.
#[allow(
    clippy::disallowed_methods,
    reason = "it is no file of a lock; what had another name was looked at after its renaming"
)]
pub(super) fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Writes a file that is not finished, with the rights that the finished one has.
fn write_beside(path: &Path, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    let mode = if like.is_some() { 0o600 } else { 0o666 };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    let mut fill = || {
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            if file.metadata()?.gid() != like.gid() {
                std::os::unix::fs::fchown(&file, None, Some(like.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
        }
        file.sync_all()
    };
    fill().inspect_err(|_| {
        let _ = remove(path);
    })
}

/// Puts the new file in the place of the old one, if that has the expected text.
fn exchange(new: &Path, old: &Path, expected: &str) -> Result<(), Hindered> {
    let is_expected = |path: &Path| read(path).is_ok_and(|text| text.as_str() == expected);
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        Ok(()) if is_expected(new) => Ok(()),
        Ok(()) => {
            renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE)?;
            Err(Hindered::Changed)
        }
        // The file system has no such step: another program has the time of two system calls.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if !is_expected(old) {
                return Err(Hindered::Changed);
            }
            Ok(fs::rename(new, old)?)
        }
        Err(Errno::NOENT) => Err(Hindered::Changed),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a file a name that is free.
fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if to.symlink_metadata().is_ok() {
                return Err(Errno::EXIST);
            }
            rustix::fs::rename(from, to)
        }
        other => other,
    }
}

pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    match File::open(folder)?.sync_all() {
        // The file system syncs no folders.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL | Errno::NOTSUP)
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Makes one folder, unless it is there.
pub(super) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder_of(path),
    }
}

/// Removes folders that are empty, the innermost first. One that has something in it stays, and so do those above it.
pub(super) fn remove_empty(folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders.iter().rev() {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(()),
            Err(error) if !is_missing(&error) => return Err(failed(folder, "removed", &error)),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses what is another user's.
fn own(path: &Path, facts: &Metadata) -> Result<(), Failure> {
    match trust::own(facts) {
        Ok(()) => Ok(()),
        Err(Distrust::Strangers) => Err(Failure::new(
            Exit::Permission,
            "PERMISSION_DENIED",
            format!(
                "{} belongs to the user with the number {}, not to the caller ({}); call it as that user",
                clean_path(path),
                facts.uid(),
                rustix::process::geteuid().as_raw()
            ),
        )),
        Err(why) => Err(refused(path, &why.why(Contents::Settings))),
    }
}
