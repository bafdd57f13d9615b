//! What the operating system gives: opening files so that nothing planted is believed, renames that
//! overwrite nothing, locks on single bytes, sleeping until something happens, and the identity of this
//! process.
//!
//! A single surface has an implementation for each system: `unix` for Linux and macOS, `windows`.
//! Nothing here decides anything; what a system cannot do is answered with an error, never with a guess.
//! A difference between the systems that a caller has to know is a constant or an `Option` of this
//! surface. It is no `cfg` at the caller.
//!
//! [`Errno`] is the system's own error under the names that POSIX has for them.

#[cfg(not(any(unix, windows)))]
compile_error!("tenure keeps its locks with what Unix or Windows gives, and this is neither");

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// The mount of a folder.
#[cfg_attr(windows, allow(dead_code, reason = "no folder is looked at there"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The name of the file system, as the system mounts it.
    pub file_system: String,
    /// Programs outside of this unit or mount namespace see another folder of that name.
    pub is_apart: bool,
}

/// What a descriptor had to tell.
#[cfg_attr(
    windows,
    allow(dead_code, reason = "no store of that system tells anything by one")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Nothing.
    Nothing,
    /// Something has changed.
    Changed,
    /// No process is left that could tell anything: it counts as readable from now on.
    Ended,
}

/// What a file is opened for. None of them follows a link in the last part of the name, and none
/// waits for the other end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Reading what is there.
    Read,
    /// Changing what is there.
    Change,
    /// Changing it, and making it (for this user alone) if it is not there.
    Create,
    /// For changing, where every write goes to the end; made if it is not there.
    Append,
    /// Writing to the end of what is there.
    Extend,
    /// Making it, for this user alone; an error if anything is there.
    New,
}

/// For whom a folder's files are made, beside the user that makes them.
#[cfg_attr(
    windows,
    allow(dead_code, reason = "access lists are not looked at there")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// For no other user.
    Owner,
    /// For the folder's group, to look at.
    GroupReads,
    /// For the folder's group, to use.
    Group,
}

/// Repeats a call for as long as signal handlers interrupt it.
pub fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// What a file can be watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFor {
    /// Changes of its content, touches, and its removal.
    Changes,
    /// Touches and its removal.
    Touches,
    /// Of a folder: another name for it, and its removal.
    Moves,
    /// Of a folder: changes of the files in it, and new ones.
    Files,
    /// Of a folder: as [`WatchFor::Files`], and also files that are touched or removed, or closed after a process had them
    /// open to write: the death of a process closes them.
    Ends,
}
