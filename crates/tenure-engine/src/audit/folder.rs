//! Opening the audit's folders and files, and refusing those that cannot be trusted.
//!
//! As with locks, everything is opened relative to the folder's own descriptor and never through a link. A
//! folder that all users may write and that lacks the sticky bit is refused.
//!
//! In a folder where several users may write, each has files of its own, with its number in the name. A file there that
//! does not belong to that user is refused: a line that any user could have planted proves nothing.

use super::stream::StreamFile as FileName;
use super::{AuditError, Place};
use std::path::{Path, PathBuf};
use tenure_os::os::{self, BorrowedDescriptor, Descriptor, Errno, Facts, Open, Sharing};
use tenure_os::private::IGNORE_FILE;
#[cfg(unix)]
use tenure_os::private::could_make_folder;
use tenure_os::private::{
    ignore_all, make_folder, make_own_folder_in, open_or_make, open_own_folder, open_own_folder_in,
};
use tenure_os::trust::{self, Contents, Distrust, Named, OpenRefusal};
use tenure_store::printed::clean_path;

/// Device and number: the same as long as a file lives, whatever its name.
pub(super) type Inode = (u64, u64);

/// A folder of the audit, opened and found good.
#[derive(Debug)]
pub(super) struct Folder {
    fd: Descriptor,
    path: PathBuf,
    facts: Facts,
}

/// A file of the audit, opened and found good.
#[derive(Debug)]
pub(super) struct File {
    pub(super) fd: Descriptor,
    pub(super) inode: Inode,
    pub(super) size: u64,
    /// Whether the file has the rights of files of its folder.
    is_shared: bool,
}

impl Folder {
    /// Opens the audit's folder. If `create` says so, makes it and its parents, 0700 each; in a work tree
    /// git ignores it. `None` if it is not there and need not be.
    pub(super) fn open(place: &Place, create: bool) -> Result<Option<Self>, AuditError> {
        match &place.within {
            None => Self::open_anywhere(place.dir(), place.named, create),
            Some(locks) => Self::open_below(locks, place, create),
        }
    }

    /// A folder at any path, which may be a link if the caller named it.
    fn open_anywhere(path: &Path, named: Named, create: bool) -> Result<Option<Self>, AuditError> {
        let opened = open_own_folder(path, named, create);
        let opened = opened.map_err(|(at, why)| refused(&at, why))?;
        Ok(opened.map(|opened| Self::of(opened, path.to_owned())))
    }

    /// A folder below the locks. A caller that names the folder of the locks does not know of a link in it,
    /// so no link is followed. Where all users may make files, it has to be the caller's own.
    ///
    /// Most often that is one call. Only the last part of the path has to be looked at, because the part
    /// before it is the folder that the caller named.
    fn open_below(locks: &Path, place: &Place, create: bool) -> Result<Option<Self>, AuditError> {
        let path = place.dir();
        let rest = path.strip_prefix(locks).unwrap_or(path);
        if path.parent() == Some(locks) {
            match trust::folder_itself(path, place.named) {
                Err(OpenRefusal::Opening(Errno::NOENT)) if create => {}
                Err(OpenRefusal::Opening(Errno::NOENT)) => return Ok(None),
                Ok(opened) if opened.1.is_ours() => {
                    return Ok(Some(Self::of(opened, path.to_owned())));
                }
                Ok(_) => {}
                Err(why) => return Err(refused(path, why)),
            }
        }
        // Git may see what else is in it.
        if place.is_of_others
            && create
            && !locks.is_dir()
            && trust::above(locks, place.named).is_ok()
        {
            make_folder(locks).map_err(|(at, errno)| refused(&at, OpenRefusal::Making(errno)))?;
        }
        let mut folder = Self::open_anywhere(locks, place.named, create)?;
        for part in rest {
            let Some(name) = part.to_str() else {
                return Err(AuditError::Unsafe {
                    place: clean_path(path),
                    why: "its name is not UTF-8".to_owned(),
                });
            };
            folder = match folder {
                Some(folder) => {
                    if create {
                        folder.make_own(name)?;
                    }
                    folder.open_in(name, create)?
                }
                None => return Ok(None),
            };
        }
        let Some(Self { fd, path, facts }) = folder else {
            return Ok(None);
        };
        let judged = trust::judged((fd, facts), place.named);
        let opened = judged.map_err(|why| refused(&path, why))?;
        Ok(Some(Self::of(opened, path)))
    }

    /// Makes a folder in it, which git ignores in a work tree, unless something is there.
    fn make_own(&self, name: &str) -> Result<(), AuditError> {
        match os::open_folder_in(&self.fd, name) {
            Err(Errno::NOENT) => make_own_folder_in(&self.fd, &self.path, name)
                .map_err(|errno| fault(&self.path.join(name), "making the audit folder", errno)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Opens a folder in it, which is never reached through a link; makes it if `create` says so.
    pub(super) fn open_in(&self, name: &str, create: bool) -> Result<Option<Self>, AuditError> {
        let path = self.path.join(name);
        let opened = open_own_folder_in((&self.fd, &self.facts), name, create);
        let opened = opened.map_err(|why| refused(&path, why))?;
        Ok(opened.map(|(opened, _)| Self::of(opened, path)))
    }

    fn of((fd, facts): trust::OpenFolder, path: PathBuf) -> Self {
        Self { fd, path, facts }
    }

    /// Whether several users may create files in it.
    fn is_of_many(&self) -> bool {
        self.facts.all_may_write() || self.facts.sharing() == Sharing::Group
    }

    /// For whom its files are made.
    fn sharing(&self) -> Sharing {
        match self.facts.sharing() {
            // What one user writes, the others look at.
            Sharing::Group => Sharing::GroupReads,
            sharing => sharing,
        }
    }

    /// The user whose number stands in the names of the files that this process writes.
    pub(super) fn user(&self) -> Option<u32> {
        self.is_of_many().then(os::our_number)
    }

    pub(super) fn fd(&self) -> BorrowedDescriptor<'_> {
        os::borrow(&self.fd)
    }

    /// Whether this process may make files in it.
    #[cfg(unix)]
    pub(super) fn may_write(&self) -> Result<(), AuditError> {
        os::may_write_in(&self.fd)
            .map_err(|errno| fault(&self.path, "opening the audit folder", errno))
    }

    /// Tells git to leave everything in it alone.
    pub(super) fn ignore_all(&self) -> Result<(), AuditError> {
        ignore_all(self.fd()).map_err(|errno| {
            let path = self.path_of(IGNORE_FILE);
            fault(&path, "keeping the audit out of git", errno)
        })
    }

    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Opens a file for appending and for looking at its end; makes it if need be. `None`
    /// if the folder itself was removed meanwhile.
    pub(super) fn append(&self, name: &str) -> Result<Option<File>, AuditError> {
        let file = self.open_file(name, Open::Append)?;
        if let Some(file) = &file
            && !file.is_shared
        {
            // A strict umask must not take rights from the file; another user's file stays as it is.
            let _ = os::share(&file.fd, self.sharing());
        }
        Ok(file)
    }

    /// Opens a file for reading. `None` if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<File>, AuditError> {
        self.open_file(name, Open::Read)
    }

    fn open_file(&self, name: &str, how: Open) -> Result<Option<File>, AuditError> {
        let path = self.path_of(name);
        let sharing = self.sharing();
        let distrusted = |why: Distrust| refused(&path, why.into());
        let fd = match open_or_make(&self.fd, name, how, sharing, self.facts.owner_of_new()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => {
                let why = Distrust::of_file(errno).map(distrusted);
                return Err(why.unwrap_or_else(|| fault(&path, "opening the audit", errno)));
            }
        };
        let facts = os::facts(&fd).map_err(|errno| fault(&path, "opening the audit", errno))?;
        let user = FileName::of(name).and_then(|name| name.user);
        let user = user.filter(|_| self.is_of_many());
        trust::file(&facts, user.is_none() && self.facts.all_may_write()).map_err(distrusted)?;
        if user.is_some_and(|user| !facts.is_of(user)) {
            return Err(distrusted(Distrust::Misnamed));
        }
        Ok(Some(File {
            inode: facts.inode(),
            size: facts.size(),
            is_shared: facts.is_shared(sharing),
            fd,
        }))
    }

    /// How long the opened file is by now; `None` if the name does not lead to it any more.
    pub(super) fn size_at(&self, name: &str, file: &File) -> Result<Option<u64>, AuditError> {
        match os::facts_at(&self.fd, name) {
            Ok(facts) => Ok((facts.inode() == file.inode).then(|| facts.size())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fault(&self.path_of(name), "looking at the audit", errno)),
        }
    }

    /// The file that a name leads to, and its length.
    pub(super) fn look(&self, name: &str) -> Option<(Inode, u64)> {
        let facts = os::facts_at(&self.fd, name).ok()?;
        Some((facts.inode(), facts.size()))
    }

    /// The names in the folder, sorted. No file of an audit has a name that is not UTF-8.
    pub(super) fn names(&self) -> Result<Vec<String>, AuditError> {
        let failed = |errno| fault(&self.path, "reading the audit folder", errno);
        let mut names = Vec::new();
        os::each_name(&self.fd, &mut |name| names.push(name.to_owned())).map_err(failed)?;
        names.sort();
        Ok(names)
    }
}

impl File {
    /// How long the file is now.
    pub(super) fn size_now(&self) -> Result<u64, Errno> {
        os::facts(&self.fd).map(|facts| facts.size())
    }
}

/// Whether a writer could make the folder, which is not there.
#[cfg(unix)]
pub(super) fn could_make(place: &Place) -> Result<(), AuditError> {
    let path = place.dir();
    trust::above(path, place.named).map_err(|(_, why)| refused(path, why.into()))?;
    could_make_folder(path).map_err(|(at, source)| AuditError::Io {
        place: at.display().to_string(),
        doing: "making the audit folder",
        source,
    })
}

pub(super) fn fault(path: &Path, doing: &'static str, errno: Errno) -> AuditError {
    AuditError::Io {
        place: clean_path(path),
        doing,
        source: errno.into(),
    }
}

fn refused(path: &Path, why: OpenRefusal) -> AuditError {
    let why = match why {
        OpenRefusal::Distrust(why) => why,
        OpenRefusal::Making(errno) => return fault(path, "making the audit folder", errno),
        OpenRefusal::Opening(errno) => match Distrust::of_folder(errno) {
            Some(why) => why,
            None => return fault(path, "opening the audit folder", errno),
        },
    };
    AuditError::Unsafe {
        place: clean_path(path),
        why: why.why(Contents::Audit),
    }
}
