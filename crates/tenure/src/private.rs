//! Folders and marks that are ours alone: made with rights that no umask adds to or takes from.

use crate::os::{self, AsDescriptor, Errno, Open};
use std::path::{Path, PathBuf};

/// The file by which git is told to leave a folder alone.
pub(crate) const IGNORE_FILE: &str = ".gitignore";

/// Makes a folder and its parents, 0700 each. The error names the one that could not be made.
pub(crate) fn make_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    for folder in missing.into_iter().rev() {
        match os::make_folder(folder) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err((folder.to_owned(), errno)),
        }
    }
    Ok(())
}

/// Tells git to leave everything in a folder alone, unless it was told something already.
pub(crate) fn ignore_all(folder: impl AsDescriptor) -> Result<(), Errno> {
    match os::open_file(&folder, IGNORE_FILE, Open::New) {
        Ok(file) => os::keep_to_owner(&file)
            .and_then(|()| os::write(&file, b"*\n"))
            .map(|_| ())
            .inspect_err(|_| {
                // An empty one would tell git nothing, and nobody would look again.
                let _ = os::remove(&folder, IGNORE_FILE);
            }),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}
