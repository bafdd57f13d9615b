//! The folder that holds lock files: opening it, and refusing those that cannot be trusted.
//!
//! Every file is opened relative to the folder's own descriptor, never through a link, and what
//! was opened is looked at before it is believed. Refused are folders that everyone may write and
//! that lack the sticky bit (anybody could replace a lock file), with the sticky bit files that
//! are not ours, links and special files in place of lock files, files with a second name, and
//! file systems that do not promise locks which hold between all who see them.

use crate::private::{IGNORE_FILE, ignore_all, inode, make_folder};
use crate::store::StoreError;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, chmodat, fchmod, fstat, fstatfs, mkdirat, openat, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The folder, opened and found good.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// Only this machine can reach it.
    pub(super) local: bool,
    /// Everybody may create files in it.
    pub(super) shared: bool,
    /// Others can read it.
    pub(super) readable: bool,
}

/// A folder that was opened, and what was opened in its place after it had been removed. Whoever
/// works with the older one goes on with that, so none is closed before the last use of all.
#[derive(Debug, Default)]
pub(super) struct Latest(OnceLock<Box<Link>>);

#[derive(Debug)]
struct Link {
    folder: Folder,
    newer: Latest,
}

impl Latest {
    /// The folder to work with, if one was opened.
    pub(super) fn get(&self) -> Option<&Folder> {
        let mut link = self.0.get()?;
        while let Some(newer) = link.newer.0.get() {
            link = newer;
        }
        Some(&link.folder)
    }

    /// Works with this one from now on.
    pub(super) fn put(&self, folder: Folder) -> &Folder {
        let mut place = &self.0;
        while let Some(link) = place.get() {
            place = &link.newer.0;
        }
        let newer = Self::default();
        &place
            .get_or_init(|| Box::new(Link { folder, newer }))
            .folder
    }
}

/// What a lock file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Looking only.
    Read,
    /// Changing what is there.
    Write,
    /// Changing it, and making it if it is not there.
    Create,
}

/// A lock file, opened and found good.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    inode: (u64, u64),
}

impl Opened {
    /// The same, under the lowest free number from `min` on; where there is none, as it is.
    pub(super) fn moved_above(self, min: i32) -> Self {
        match rustix::io::fcntl_dupfd_cloexec(&self.fd, min) {
            Ok(fd) => Self { fd, ..self },
            Err(_) => self,
        }
    }

    /// Whether both are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
    }
}

impl Folder {
    /// Opens the folder; makes it (0700, parents too) if `create` says so. `None` if it is not
    /// there and need not be. A `private` one may be written by its owner alone.
    pub(super) fn open(
        path: &Path,
        create: bool,
        allow_network: bool,
        private: bool,
    ) -> Result<Option<Self>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) if create => {
                make_folder(path)
                    .map_err(|(path, errno)| fault(&path, "making the lock folder", errno))?;
                rustix::fs::open(path, flags, Mode::empty())
            }
            Err(Errno::NOENT) => return Ok(None),
            other => other,
        }
        .map_err(|errno| fault(path, "opening the lock folder", errno))?;
        let stat = fstat(&fd).map_err(|errno| fault(path, "looking at the lock folder", errno))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let shared = mode.contains(Mode::WOTH);
        if shared && !mode.contains(Mode::SVTX) {
            return Err(StoreError::Unsafe {
                place: path.display().to_string(),
                why: "everybody may write in it and it has no sticky bit, so anybody could \
                      replace a lock; `chmod o-w` it or choose another folder"
                    .to_owned(),
            });
        }
        if private && mode.intersects(Mode::WGRP | Mode::WOTH) {
            return Err(StoreError::Unsafe {
                place: path.display().to_string(),
                why: "others may write in it, so they could replace a lock; `chmod 700` it or \
                      choose another folder"
                    .to_owned(),
            });
        }
        let remote = remote_kind_of(&fd)
            .map_err(|errno| fault(path, "looking at the file system", errno))?;
        if let Some(kind) = remote
            && !allow_network
        {
            return Err(StoreError::FileSystem {
                place: path.display().to_string(),
                kind: kind.to_owned(),
                why: "where locks may not hold between machines, or not at all; choose a local \
                      folder, a store made for many machines, or say --allow-network-fs if you \
                      know that its locks work",
            });
        }
        Ok(Some(Self {
            fd,
            path: path.to_owned(),
            local: remote.is_none(),
            shared,
            readable: mode.intersects(Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH),
        }))
    }

    /// Opens a folder of ours inside this one; makes it (0700, ignored by git) if `create` says
    /// so. `None` if it is not there and need not be.
    pub(super) fn open_below(&self, name: &str, create: bool) -> Result<Option<Self>, StoreError> {
        let path = self.path_of(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || openat(&self.fd, name, flags, Mode::empty());
        let failed = |errno| fault(&path, "opening the folder beside the locks", errno);
        let (fd, is_new) = match open() {
            Err(Errno::NOENT) if create => {
                match mkdirat(&self.fd, name, Mode::RWXU) {
                    Ok(()) => chmodat(&self.fd, name, Mode::RWXU, AtFlags::empty()),
                    Err(Errno::EXIST) => Ok(()),
                    Err(errno) => Err(errno),
                }
                .map_err(|errno| fault(&path, "making the folder beside the locks", errno))?;
                (open().map_err(failed)?, true)
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(self.unsafe_file(name, "it is a link or no folder"));
            }
            other => (other.map_err(failed)?, false),
        };
        let stat = fstat(&fd).map_err(failed)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::WOTH) {
            return Err(self.unsafe_file(name, "everybody may write in it"));
        }
        if self.shared && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(self.unsafe_file(
                name,
                "it belongs to another user, in a folder where everybody may create files",
            ));
        }
        let folder = Self {
            fd,
            path,
            local: self.local,
            shared: false,
            readable: mode.intersects(Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH),
        };
        if is_new {
            folder.ignore_all()?;
        }
        Ok(Some(folder))
    }

    /// Tells git to leave everything in this folder alone, unless it was told something already.
    pub(super) fn ignore_all(&self) -> Result<(), StoreError> {
        ignore_all(self.fd()).map_err(|errno| {
            let path = self.path_of(IGNORE_FILE);
            fault(&path, "keeping the locks out of git", errno)
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether nothing can be made in it any more, because it was removed.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Opens one lock file. `None` if it is not there and need not be.
    pub(super) fn open_file(
        &self,
        file: &str,
        access: Access,
    ) -> Result<Option<Opened>, StoreError> {
        // Without O_NONBLOCK a planted FIFO would keep us here for ever.
        let common = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = match access {
            Access::Read => OFlags::RDONLY | common,
            Access::Write => OFlags::RDWR | common,
            Access::Create => OFlags::RDWR | OFlags::CREATE | common,
        };
        let path = || self.path_of(file);
        let fd = match openat(&self.fd, file, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) if access != Access::Create => return Ok(None),
            Err(Errno::LOOP) => return Err(self.unsafe_file(file, "it is a link")),
            Err(Errno::NXIO | Errno::ISDIR) => {
                return Err(self.unsafe_file(file, "it is not a regular file"));
            }
            other => other.map_err(|errno| fault(&path(), "opening the lock", errno))?,
        };
        let stat = fstat(&fd).map_err(|errno| fault(&path(), "looking at the lock", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.unsafe_file(file, "it is not a regular file"));
        }
        if stat.st_nlink > 1 {
            return Err(self.unsafe_file(file, "it has a second name elsewhere (a hard link)"));
        }
        if self.shared && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(self.unsafe_file(
                file,
                "it belongs to another user, in a folder where everybody may create files",
            ));
        }
        let mine = stat.st_uid == rustix::process::geteuid().as_raw();
        let owner_may = Mode::RUSR | Mode::WUSR;
        if access == Access::Create
            && mine
            && !Mode::from_raw_mode(stat.st_mode).contains(owner_may)
        {
            // A strict umask took our own rights from the file that we made.
            fchmod(&fd, owner_may).map_err(|errno| fault(&path(), "opening the lock", errno))?;
        }
        Ok(Some(Opened {
            fd,
            inode: inode(&stat),
        }))
    }

    /// Whether the name still leads to the opened file. Asked with the guard held: from then on
    /// nobody who heeds the guard takes the file away.
    pub(super) fn still_leads_to(&self, file: &str, opened: &Opened) -> Result<bool, StoreError> {
        match statat(&self.fd, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(inode(&stat) == opened.inode),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(fault(
                &self.path_of(file),
                "looking at the lock again",
                errno,
            )),
        }
    }

    fn unsafe_file(&self, file: &str, why: &str) -> StoreError {
        StoreError::Unsafe {
            place: self.path_of(file).display().to_string(),
            why: why.to_owned(),
        }
    }
}

/// Maps a system error to the store's own, with the two kinds that have a meaning of their own.
pub(super) fn fault(path: &Path, doing: &'static str, errno: Errno) -> StoreError {
    let place = path.display().to_string();
    match errno {
        Errno::ACCESS | Errno::PERM => StoreError::Permission { place, doing },
        // No change of permissions would help; whoever reads this has to be told so.
        Errno::ROFS => StoreError::Permission {
            place,
            doing: "its file system is read-only",
        },
        Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS => StoreError::FileSystem {
            place,
            kind: "a file system without working locks".to_owned(),
            why: "so nothing kept there can exclude anybody; choose a local folder",
        },
        errno => StoreError::Io {
            place,
            doing,
            source: errno.into(),
        },
    }
}

/// The same for an error that comes from std.
pub(super) fn io_fault(path: &Path, doing: &'static str, error: std::io::Error) -> StoreError {
    match error.raw_os_error() {
        Some(raw) => fault(path, doing, Errno::from_raw_os_error(raw)),
        None => StoreError::Io {
            place: path.display().to_string(),
            doing,
            source: error,
        },
    }
}

/// The name of the file system if other machines, or another program, stand behind it.
pub(crate) fn remote_kind_of(fd: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let stat = fstatfs(fd)?;
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast,
        reason = "the kernel's magic numbers have 32 bits; the field's width and sign differ"
    )]
    let magic = stat.f_type as u32;
    Ok(remote_kind(magic))
}

/// Magic numbers from `linux/magic.h` and the file systems' own headers.
fn remote_kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "nfs",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "smb/cifs",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE (or virtiofs)",
        0x00c3_6400 => "ceph",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x7375_7245 => "coda",
        0x564c => "ncp",
        0x0bd0_0bd0 => "lustre",
        0x0116_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        0x4750_4653 => "gpfs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers_and_local_ones_pass() {
        for remote in [0x6969, 0xfe53_4d42, 0x0102_1997, 0x6573_5546, 0x00c3_6400] {
            assert!(remote_kind(remote).is_some(), "{remote:#x}");
        }
        for (local, name) in [
            (0xef53, "ext4"),
            (0x0102_1994, "tmpfs"),
            (0x5846_5342, "xfs"),
            (0x9123_683e, "btrfs"),
            (0x794c_7630, "overlayfs"),
        ] {
            assert_eq!(remote_kind(local), None, "{name}");
        }
    }
}
