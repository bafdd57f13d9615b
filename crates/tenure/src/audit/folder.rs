//! Opening the audit's folders and files, and refusing those that cannot be trusted.
//!
//! As with locks, everything is opened relative to the folder's own descriptor and never through
//! a link. A folder that everybody may write and that lacks the sticky bit is refused; with the
//! sticky bit its files have to be ours, for a line that anybody could have planted proves
//! nothing.

use super::AuditError;
use crate::private::{IGNORE_FILE, ignore_all, inode, make_folder};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, mkdirat, openat, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Device and number: the same as long as a file lives, whatever its name.
pub(super) type Inode = (u64, u64);

/// A folder of the audit, opened and found good.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// Everybody may create files in it.
    shared: bool,
}

/// A file of the audit, opened and found good.
#[derive(Debug)]
pub(super) struct File {
    pub(super) fd: OwnedFd,
    pub(super) inode: Inode,
    pub(super) size: u64,
}

impl Folder {
    /// Opens the audit's folder; makes it and its parents (0700) if `create` says so. `None` if
    /// it is not there and need not be.
    pub(super) fn open(path: &Path, create: bool) -> Result<Option<Self>, AuditError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) if create => {
                make_folder(path)
                    .map_err(|(path, errno)| fault(&path, "making the audit folder", errno))?;
                open()
            }
            other => other,
        };
        Self::of(opened, path.to_owned(), create)
    }

    /// The same for a folder in it. That one is never reached through a link.
    pub(super) fn open_in(&self, name: &str, create: bool) -> Result<Option<Self>, AuditError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = self.path.join(name);
        let opened = match openat(&self.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if create => match mkdirat(&self.fd, name, Mode::RWXU) {
                // A strict umask must not take our own rights from the folder.
                Ok(()) => chmodat(&self.fd, name, Mode::RWXU, AtFlags::empty())
                    .and_then(|()| openat(&self.fd, name, flags, Mode::empty())),
                Err(Errno::EXIST) => openat(&self.fd, name, flags, Mode::empty()),
                Err(errno) => Err(errno),
            },
            other => other,
        };
        let folder = Self::of(opened, path, create)?;
        if let Some(folder) = &folder
            && self.shared
        {
            owned(&folder.fd, &folder.path)?;
        }
        Ok(folder)
    }

    fn of(
        opened: rustix::io::Result<OwnedFd>,
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
        let stat = fstat(&fd).map_err(|errno| fault(&path, "opening the audit folder", errno))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let shared = mode.contains(Mode::WOTH);
        if shared && !mode.contains(Mode::SVTX) {
            return Err(distrust(
                &path,
                "everybody may write in it and it has no sticky bit, so anybody could replace \
                 the audit; `chmod o-w` it or choose another folder",
            ));
        }
        Ok(Some(Self { fd, path, shared }))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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

    /// Opens a file for appending and for looking at its end; makes it (0600) if need be. `None`
    /// if the folder itself was removed meanwhile.
    pub(super) fn append(&self, name: &str) -> Result<Option<File>, AuditError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let file = self.open_file(name, flags)?;
        if let Some(file) = &file {
            // A strict umask must not take our own rights from the file; another's stays as it is.
            let owner_may = Mode::RUSR | Mode::WUSR;
            let stat = fstat(&file.fd);
            if stat.is_ok_and(|stat| !Mode::from_raw_mode(stat.st_mode).contains(owner_may)) {
                let _ = fchmod(&file.fd, owner_may);
            }
        }
        Ok(file)
    }

    /// Opens a file for reading. `None` if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<File>, AuditError> {
        self.open_file(name, OFlags::RDONLY)
    }

    fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<File>, AuditError> {
        // Without O_NONBLOCK a planted FIFO would keep us here for ever.
        let common = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = self.path_of(name);
        let fd = match openat(&self.fd, name, flags | common, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(distrust(&path, "it is a link")),
            Err(Errno::NXIO | Errno::ISDIR) => {
                return Err(distrust(&path, "it is not a regular file"));
            }
            other => other.map_err(|errno| fault(&path, "opening the audit", errno))?,
        };
        let stat = fstat(&fd).map_err(|errno| fault(&path, "opening the audit", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(distrust(&path, "it is not a regular file"));
        }
        if stat.st_nlink > 1 {
            return Err(distrust(&path, "it has a second name (a hard link)"));
        }
        if self.shared {
            owned(&fd, &path)?;
        }
        Ok(Some(File {
            inode: inode(&stat),
            size: size(&stat),
            fd,
        }))
    }

    /// Whether the name still leads to the opened file.
    pub(super) fn still_leads_to(&self, name: &str, file: &File) -> Result<bool, AuditError> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(inode(&stat) == file.inode),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(fault(&self.path_of(name), "looking at the audit", errno)),
        }
    }

    /// Which file a name leads to, and how long it is.
    pub(super) fn look(&self, name: &str) -> Option<(Inode, u64)> {
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((inode(&stat), size(&stat)))
    }

    /// The names in the folder, sorted; those that are no UTF-8 are none of ours.
    pub(super) fn names(&self) -> Result<Vec<String>, AuditError> {
        let failed = |errno| fault(&self.path, "reading the audit folder", errno);
        let mut names = Vec::new();
        for item in Dir::read_from(&self.fd).map_err(failed)? {
            let item = item.map_err(failed)?;
            if let Ok(name) = item.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

impl File {
    /// How long the file is now.
    pub(super) fn size_now(&self) -> rustix::io::Result<u64> {
        fstat(&self.fd).map(|stat| size(&stat))
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn owned(fd: &OwnedFd, path: &Path) -> Result<(), AuditError> {
    let stat = fstat(fd).map_err(|errno| fault(path, "looking at the audit", errno))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(distrust(
        path,
        "it belongs to another user, in a folder where everybody may create files",
    ))
}

pub(super) fn fault(path: &Path, doing: &'static str, errno: Errno) -> AuditError {
    AuditError::Io {
        place: path.display().to_string(),
        doing,
        source: errno.into(),
    }
}

fn distrust(path: &Path, why: &'static str) -> AuditError {
    AuditError::Unsafe {
        place: path.display().to_string(),
        why,
    }
}
