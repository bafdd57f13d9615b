//! Folders and marks that are ours alone: made with rights that no umask adds to or takes from.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, chmod, fchmod, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// The file by which git is told to leave a folder alone.
pub(crate) const IGNORE_FILE: &str = ".gitignore";

/// Device and number: the same as long as a file lives, whatever its name.
#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "the fields' widths differ between platforms"
)]
pub(crate) fn inode(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Makes a folder and its parents, 0700 each. The error names the one that could not be made.
pub(crate) fn make_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    for folder in missing.into_iter().rev() {
        match mkdirat(CWD, folder, Mode::RWXU) {
            Ok(()) => chmod(folder, Mode::RWXU),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| (folder.to_owned(), errno))?;
    }
    Ok(())
}

/// Tells git to leave everything in a folder alone, unless it was told something already.
pub(crate) fn ignore_all(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(folder, IGNORE_FILE, flags, mode) {
        Ok(fd) => fchmod(&fd, mode)
            .and_then(|()| rustix::io::write(&fd, b"*\n"))
            .map(|_| ())
            .inspect_err(|_| {
                // An empty one would tell git nothing, and nobody would look again.
                let _ = unlinkat(folder, IGNORE_FILE, AtFlags::empty());
            }),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}
