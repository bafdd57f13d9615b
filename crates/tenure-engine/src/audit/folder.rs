//! Opening the audit's folders and files, and refusing those that cannot be trusted.
//!
//! As with locks, everything is opened relative to the folder's own descriptor and never through a link. A
//! folder that all users may write and that lacks the sticky bit is refused.
//!
//! In a folder where several users may write, each has files of its own, with its number in the name. A file there that
//! does not belong to that user is refused: a line that any user could have planted proves nothing.

use super::stream::StreamFile as FileName;
use super::{AuditError, Place};
use crate::os::{self, BorrowedDescriptor, Descriptor, Errno, Open, Sharing};
use crate::printed::clean_path;
#[cfg(unix)]
use crate::private::could_make_folder;
use crate::private::{
    ignore_all, make_folder, make_folder_in, make_own_folder, make_own_folder_in, open_or_make,
};
use crate::repository::IGNORE_FILE;
use crate::trust::{self, Named};
use std::path::{Path, PathBuf};

/// Device and number: the same as long as a file lives, whatever its name.
pub(super) type Inode = (u64, u64);

/// A folder of the audit, opened and found good.
#[derive(Debug)]
pub(super) struct Folder {
    fd: Descriptor,
    path: PathBuf,
    /// All users may create files in it.
    shared: bool,
    /// Several users may.
    is_of_many: bool,
    /// For whom its files are made.
    sharing: Sharing,
    /// The other user to whom belong the files that root makes in it.
    owner: Option<u32>,
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
        let opened = match &place.within {
            None => Self::open_anywhere(place, create)?,
            Some(locks) => Self::open_below(locks, place, create)?,
        };
        if let Some(folder) = &opened
            && place.named == Named::ByNobody
        {
            let failed = |errno| fault(&folder.path, "opening the audit folder", errno);
            let facts = os::facts(&folder.fd).map_err(failed)?;
            if trust::refusal(&facts).is_some() {
                return Err(distrust(&folder.path, NOBODY_NAMED_IT));
            }
        }
        Ok(opened)
    }

    /// A folder at any path, which may be a link if the caller named it.
    fn open_anywhere(place: &Place, create: bool) -> Result<Option<Self>, AuditError> {
        let path = place.dir();
        let open = || match place.named {
            Named::ByCaller => os::open_folder(path).map(Some),
            Named::ByNobody => trust::open_folder(path).map(Result::ok),
        };
        let opened = match open() {
            Err(Errno::NOENT) if create => {
                if place.named == Named::ByNobody && trust::refusal_above(path).is_some() {
                    return Err(distrust(path, NOBODY_NAMED_IT));
                }
                make_own_folder(path)
                    .map_err(|(path, errno)| fault(&path, "making the audit folder", errno))?;
                open()
            }
            other => other,
        };
        let opened = match opened {
            Ok(None) => return Err(distrust(path, NOBODY_NAMED_IT)),
            Ok(Some(fd)) => Ok(fd),
            Err(errno) => Err(errno),
        };
        Self::of(opened, path.to_owned(), create)
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
            match os::open_folder_itself(path) {
                Err(Errno::NOENT) if create => {}
                opened => {
                    let folder = Self::of(opened, path.to_owned(), create)?;
                    let is_ours =
                        |folder: &Self| os::facts(&folder.fd).is_ok_and(|it| it.is_ours());
                    if folder.as_ref().is_none_or(is_ours) {
                        return Ok(folder);
                    }
                }
            }
        }
        let top = Place {
            within: None,
            ..Place::from(locks)
        };
        let top = Place {
            named: place.named,
            ..top
        };
        // Git may see what else is in it.
        if place.is_of_others
            && create
            && !locks.is_dir()
            && (place.named == Named::ByCaller || trust::refusal_above(locks).is_none())
        {
            make_folder(locks)
                .map_err(|(path, errno)| fault(&path, "making the audit folder", errno))?;
        }
        let mut folder = Self::open_anywhere(&top, create)?;
        for part in rest {
            let Some(name) = part.to_str() else {
                return Err(distrust(path, "its name is not UTF-8"));
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
        Ok(folder)
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
        let open = || os::open_folder_in(&self.fd, name);
        let opened = match open() {
            Err(Errno::NOENT) if create => match make_folder_in(&self.fd, name) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(errno) => Err(errno),
            },
            other => other,
        };
        let folder = Self::of(opened, path, create)?;
        if let Some(folder) = &folder {
            if self.shared {
                owned(&folder.fd, &folder.path)?;
            }
            let looking = |errno| fault(&folder.path, "opening the audit folder", errno);
            let around = os::facts(&self.fd).map_err(looking)?;
            let facts = os::facts(&folder.fd).map_err(looking)?;
            if trust::is_open_to_members(&around)
                && let Some(why) = trust::weakness(&facts)
            {
                return Err(distrust(&folder.path, why));
            }
        }
        Ok(folder)
    }

    fn of(
        opened: Result<Descriptor, Errno>,
        path: PathBuf,
        create: bool,
    ) -> Result<Option<Self>, AuditError> {
        let fd = match opened {
            Err(Errno::NOENT) if !create => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(distrust(&path, "it is a link or no folder at all"));
            }
            other => other.map_err(|errno| fault(&path, "opening the audit folder", errno))?,
        };
        let facts =
            os::facts(&fd).map_err(|errno| fault(&path, "opening the audit folder", errno))?;
        let shared = facts.all_may_write();
        if shared && !facts.is_sticky() {
            return Err(distrust(
                &path,
                "everybody may write in it and it has no sticky bit, so anybody could replace \
                 the audit; `chmod o-w` it or choose another folder",
            ));
        }
        Ok(Some(Self {
            fd,
            path,
            shared,
            is_of_many: shared || facts.sharing() == Sharing::Group,
            sharing: match facts.sharing() {
                // What one user writes, the others look at.
                Sharing::Group => Sharing::GroupReads,
                sharing => sharing,
            },
            owner: facts.owner_of_new(),
        }))
    }

    /// The user whose number stands in the names of the files that this process writes.
    pub(super) fn user(&self) -> Option<u32> {
        self.is_of_many.then(os::our_number)
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
            let _ = os::share(&file.fd, self.sharing);
        }
        Ok(file)
    }

    /// Opens a file for reading. `None` if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<File>, AuditError> {
        self.open_file(name, Open::Read)
    }

    fn open_file(&self, name: &str, how: Open) -> Result<Option<File>, AuditError> {
        let path = self.path_of(name);
        let fd = match open_or_make(&self.fd, name, how, self.sharing, self.owner) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(distrust(&path, "it is a link")),
            Err(Errno::NXIO | Errno::ISDIR) => {
                return Err(distrust(&path, "it is not a regular file"));
            }
            other => other.map_err(|errno| fault(&path, "opening the audit", errno))?,
        };
        let facts = os::facts(&fd).map_err(|errno| fault(&path, "opening the audit", errno))?;
        if !facts.is_regular() {
            return Err(distrust(&path, "it is not a regular file"));
        }
        if facts.names() > 1 {
            return Err(distrust(&path, "it has a second name (a hard link)"));
        }
        match FileName::of(name).and_then(|name| name.user) {
            Some(user) if self.is_of_many => {
                if !facts.is_of(user) {
                    return Err(distrust(
                        &path,
                        "it does not belong to the user in its name",
                    ));
                }
            }
            Some(_) | None if self.shared => owned(&fd, &path)?,
            Some(_) | None => {}
        }
        Ok(Some(File {
            inode: facts.inode(),
            size: facts.size(),
            is_shared: facts.is_shared(self.sharing),
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
    if place.named == Named::ByNobody && trust::refusal_above(path).is_some() {
        return Err(distrust(path, NOBODY_NAMED_IT));
    }
    could_make_folder(path).map_err(|(at, source)| AuditError::Io {
        place: at.display().to_string(),
        doing: "making the audit folder",
        source,
    })
}

fn owned(fd: &Descriptor, path: &Path) -> Result<(), AuditError> {
    let facts = os::facts(fd).map_err(|errno| fault(path, "looking at the audit", errno))?;
    if facts.is_ours() {
        return Ok(());
    }
    Err(distrust(
        path,
        "it belongs to another user, in a folder where everybody may create files",
    ))
}

pub(super) fn fault(path: &Path, doing: &'static str, errno: Errno) -> AuditError {
    AuditError::Io {
        place: clean_path(path),
        doing,
        source: errno.into(),
    }
}

/// The message about another user's folder to which a search or a default led.
const NOBODY_NAMED_IT: &str = "it belongs to another user, and no caller named it; name it with \
                               --audit-dir if it is to be used";

fn distrust(path: &Path, why: &'static str) -> AuditError {
    AuditError::Unsafe {
        place: clean_path(path),
        why,
    }
}
