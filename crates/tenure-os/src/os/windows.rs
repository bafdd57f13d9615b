//! Windows. The system's calls themselves are in `raw`; here they are made into what the callers need.
//!
//! Some things differ from Unix, and their callers rely on what is said here:
//! - A file that another process has open, without letting others rename or remove it, cannot be renamed or
//!   removed. Programs that merely read do that, so the call is tried again for [`PATIENCE_MS`].
//! - A lock belongs to the open file **and** the process: a process that has inherited the handle does not
//!   keep it. `docs/windows.md` says what follows from that for `tenure run`.
//! - Rights are those of the folder (inherited access lists). They are neither set nor judged here, so no
//!   folder is found to be open to others.
//! - Two files cannot change places in one step, and nothing can be watched: [`EXCHANGES`] and [`WATCHES`]
//!   are false. An open file may be replaced on newer systems only: [`REPLACES_OPEN_FILES`].

#[allow(
    unsafe_code,
    reason = "the system's own calls, each behind a safe function"
)]
pub(crate) mod raw;

pub use raw::console;

use super::{Notice, Open, Sharing, WatchFor};
use raw::{How, Information, Removal, Target};
use std::convert::Infallible;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_CREATE, FILE_DIRECTORY_FILE, FILE_NON_DIRECTORY_FILE, FILE_OPEN, FILE_OPEN_IF,
    FILE_OPEN_REPARSE_POINT, FILE_SYNCHRONOUS_IO_NONALERT,
};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_ALREADY_EXISTS, ERROR_CALL_NOT_IMPLEMENTED,
    ERROR_CANT_RESOLVE_FILENAME, ERROR_DELETE_PENDING, ERROR_DIRECTORY,
    ERROR_DIRECTORY_NOT_SUPPORTED, ERROR_DISK_FULL, ERROR_FILE_EXISTS, ERROR_FILE_NOT_FOUND,
    ERROR_HANDLE_DISK_FULL, ERROR_INVALID_FUNCTION, ERROR_INVALID_HANDLE, ERROR_INVALID_PARAMETER,
    ERROR_IO_DEVICE, ERROR_NO_MORE_FILES, ERROR_NOT_SUPPORTED, ERROR_PATH_NOT_FOUND,
    ERROR_PRIVILEGE_NOT_HELD, ERROR_RETRY, ERROR_SHARING_BUFFER_EXCEEDED, ERROR_SHARING_VIOLATION,
    ERROR_WRITE_PROTECT,
};
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_APPEND_DATA, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_GENERIC_READ, FILE_GENERIC_WRITE, FILE_LIST_DIRECTORY,
    FILE_READ_ATTRIBUTES, FILE_TRAVERSE, FILE_WRITE_ATTRIBUTES, SYNCHRONIZE,
};

/// An open file, folder, event or process.
pub use std::os::windows::io::OwnedHandle as Descriptor;

/// A borrowed one.
pub use std::os::windows::io::BorrowedHandle as BorrowedDescriptor;

/// Whatever has one.
pub use std::os::windows::io::AsHandle as AsDescriptor;

/// Whether two files can change places in one step.
pub const EXCHANGES: bool = false;

/// Whether a file can be replaced while a process has it open. If it cannot, a caller waits until it is
/// closed.
pub const REPLACES_OPEN_FILES: bool = false;

/// Whether a folder that a process has open can get another name, or another folder its name.
pub const FOLDERS_MOVE: bool = false;

/// The root folder of this process. No process gets another one here.
#[allow(dead_code, reason = "one surface with what Unix has")]
#[derive(Debug)]
pub struct Root;

impl Root {
    /// The present one: none is kept.
    pub fn present() -> Option<Self> {
        None
    }

    /// Whether this process has another one now.
    #[allow(clippy::unused_self, reason = "one surface with what Unix does")]
    pub fn is_left(&self) -> bool {
        false
    }

    /// Looks at what a path leads to.
    #[allow(clippy::unused_self, reason = "one surface with what Unix does")]
    pub fn facts_of(&self, path: &Path) -> Result<Facts, Errno> {
        facts_of(path)
    }
}

/// Whether what is open tells how many names are left to it, also when the last one was removed.
pub const COUNTS_NAMES: bool = false;

/// Whether files can be watched.
pub const WATCHES: bool = false;

/// How long a caller waits for a file that another process has open without sharing it, in milliseconds.
const PATIENCE_MS: u64 = 1_000;

/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Borrows a descriptor.
pub fn borrow(descriptor: &impl AsHandle) -> BorrowedDescriptor<'_> {
    descriptor.as_handle()
}

/// An error of the system, under the names that POSIX has for them. Errors that mean the same are the
/// same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(u32);

impl Errno {
    /// `ENOENT` of POSIX.
    pub const NOENT: Self = Self(ERROR_FILE_NOT_FOUND);
    /// `EEXIST` of POSIX.
    pub const EXIST: Self = Self(ERROR_ALREADY_EXISTS);
    /// `EACCES` of POSIX.
    pub const ACCESS: Self = Self(ERROR_ACCESS_DENIED);
    /// `EPERM` of POSIX.
    pub const PERM: Self = Self(ERROR_PRIVILEGE_NOT_HELD);
    /// `EROFS` of POSIX.
    pub const ROFS: Self = Self(ERROR_WRITE_PROTECT);
    /// `ENOLCK` of POSIX.
    pub const NOLCK: Self = Self(ERROR_SHARING_BUFFER_EXCEEDED);
    /// `ENOTSUP` of POSIX.
    pub const NOTSUP: Self = Self(ERROR_NOT_SUPPORTED);
    /// `ENOSYS` of POSIX.
    pub const NOSYS: Self = Self(ERROR_INVALID_FUNCTION);
    /// `ELOOP` of POSIX.
    pub const LOOP: Self = Self(ERROR_CANT_RESOLVE_FILENAME);
    /// `ENOTDIR` of POSIX.
    pub const NOTDIR: Self = Self(ERROR_DIRECTORY);
    /// `EISDIR` of POSIX.
    pub const ISDIR: Self = Self(ERROR_DIRECTORY_NOT_SUPPORTED);
    /// `ENOSPC` of POSIX.
    pub const NOSPC: Self = Self(ERROR_DISK_FULL);
    /// `EAGAIN` of POSIX.
    pub const AGAIN: Self = Self(ERROR_RETRY);
    /// `EINVAL` of POSIX.
    pub const INVAL: Self = Self(ERROR_INVALID_PARAMETER);
    /// `EIO` of POSIX.
    pub const IO: Self = Self(ERROR_IO_DEVICE);
    /// A file that is removed as soon as the last process that has it open closes it.
    pub(crate) const GOING: Self = Self(ERROR_DELETE_PENDING);
    /// The end of a list.
    pub(crate) const NO_MORE: Self = Self(ERROR_NO_MORE_FILES);
    /// `EINTR` of POSIX. Never answered by this system, which has no such thing; the number is an application's own.
    pub const INTR: Self = Self(0x2000_0001);
    /// `ENXIO` of POSIX. Never answered either.
    pub const NXIO: Self = Self(0x2000_0002);

    /// The error with this number.
    pub fn of(code: u32) -> Self {
        Self(match code {
            ERROR_PATH_NOT_FOUND => ERROR_FILE_NOT_FOUND,
            ERROR_FILE_EXISTS => ERROR_ALREADY_EXISTS,
            ERROR_HANDLE_DISK_FULL => ERROR_DISK_FULL,
            other => other,
        })
    }

    /// The error with this number, as std has it.
    pub fn from_raw_os_error(code: i32) -> Self {
        Self::of(code.cast_unsigned())
    }

    fn of_io(error: &io::Error) -> Self {
        error
            .raw_os_error()
            .map_or(Self::INVAL, Self::from_raw_os_error)
    }

    /// Whether another process has the file open without sharing it.
    fn is_in_use(self) -> bool {
        self == Self(ERROR_SHARING_VIOLATION)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0.cast_signed())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&io::Error::from(*self), f)
    }
}

/// Tries again, within bounds, for as long as another process blocks the call.
fn patiently<T>(
    mut call: impl FnMut() -> Result<T, Errno>,
    is_in_the_way: impl Fn(Errno) -> bool,
) -> Result<T, Errno> {
    let began = raw::since_boot_ms();
    let mut pause = PAUSE_MIN;
    loop {
        match call() {
            Err(errno)
                if is_in_the_way(errno)
                    && raw::since_boot_ms().saturating_sub(began) < PATIENCE_MS =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            other => return other,
        }
    }
}

/// The number of this process's user: here users have none.
pub fn our_number() -> u32 {
    0
}

/// From 1601, where this system's times begin, to 1970, in units of 100 ns.
const EPOCH: u64 = 116_444_736_000_000_000;

/// What the system says of an open file or folder.
#[derive(Debug)]
pub struct Facts(Information);

impl Facts {
    /// The file's number: the same as long as a file lives, whatever its name. Files are only compared
    /// within one volume, so the volume has no part in it.
    pub fn inode(&self) -> (u64, u64) {
        (0, self.0.number)
    }

    fn is_link(&self) -> bool {
        self.0.attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0
    }

    fn is_folder(&self) -> bool {
        self.0.attributes & FILE_ATTRIBUTE_DIRECTORY != 0
    }

    /// Whether it is a file with content of its own.
    pub fn is_regular(&self) -> bool {
        !self.is_folder() && !self.is_link()
    }

    /// How many names it has; 0 once it was removed.
    pub fn names(&self) -> u64 {
        if self.0.is_going {
            0
        } else {
            self.0.names.into()
        }
    }

    /// Owners are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_ours(&self) -> bool {
        true
    }

    /// Owners are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_roots(&self) -> bool {
        false
    }

    /// Owners are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn owner_of_new(&self) -> Option<u32> {
        None
    }

    /// Owners are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_of(&self, _: u32) -> bool {
        false
    }

    /// Owners are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn owner_text(&self) -> String {
        "another user".to_owned()
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub(crate) fn is_made_for_several(&self) -> bool {
        false
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn all_may_write(&self) -> bool {
        false
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn others_may_write(&self) -> bool {
        false
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn others_may_look(&self) -> bool {
        false
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn all_may_look(&self) -> bool {
        false
    }

    /// Always false: this system has no such folders.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_sticky(&self) -> bool {
        false
    }

    /// Access lists are not looked at.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn sharing(&self) -> Sharing {
        Sharing::Owner
    }

    /// Nothing takes rights from the user that makes a file.
    #[allow(clippy::unused_self, reason = "one surface")]
    pub fn is_shared(&self, _: Sharing) -> bool {
        true
    }
}

/// Looks at what is open.
pub fn facts(file: impl AsHandle) -> Result<Facts, Errno> {
    raw::information(file.as_handle()).map(Facts)
}

/// Looks at what is open, and when it was written last, in milliseconds since the epoch.
pub fn facts_and_time(file: impl AsHandle) -> Result<(Facts, u64), Errno> {
    let facts = facts(file)?;
    let modified_ms = facts.0.written.saturating_sub(EPOCH) / 10_000;
    Ok((facts, modified_ms))
}

/// Looks at what a path leads to, through links.
pub fn facts_of(path: &Path) -> Result<Facts, Errno> {
    facts(&open_folder(path)?)
}

/// Options for everything that is opened: itself and not what a link points at, and every call is over
/// when it returns.
const OPTIONS: u32 = FILE_OPEN_REPARSE_POINT | FILE_SYNCHRONOUS_IO_NONALERT;

fn text(name: &Path) -> Result<&str, Errno> {
    // A name is one part. The native call would take more, and no name of tenure has more.
    let text = name.to_str().ok_or(Errno::INVAL)?;
    if text.is_empty() || text.contains(['/', '\\', ':']) {
        return Err(Errno::INVAL);
    }
    Ok(text)
}

fn open_with(folder: impl AsHandle, name: &Path, how: How) -> Result<Descriptor, Errno> {
    let (folder, name) = (folder.as_handle(), text(name)?);
    patiently(|| raw::open_in(folder, name, how), Errno::is_in_use)
}

/// Looks at what a name leads to, itself and not what a link points at.
pub fn facts_at(folder: impl AsHandle, name: impl AsRef<Path>) -> Result<Facts, Errno> {
    let how = How {
        access: FILE_READ_ATTRIBUTES | SYNCHRONIZE,
        disposition: FILE_OPEN,
        options: OPTIONS,
    };
    match open_with(folder, name.as_ref(), how) {
        Ok(opened) => facts(&opened),
        // The name leads nowhere any more.
        Err(Errno::GOING) => Err(Errno::NOENT),
        Err(errno) => Err(errno),
    }
}

const FOLDER_ACCESS: u32 = FILE_LIST_DIRECTORY | FILE_TRAVERSE | FILE_READ_ATTRIBUTES | SYNCHRONIZE;

/// Opens a folder by its path.
pub fn open_folder(path: &Path) -> Result<Descriptor, Errno> {
    let opened = open_either(path, OpenOptions::new().access_mode(FOLDER_ACCESS))?;
    if facts(&opened)?.is_folder() {
        Ok(opened)
    } else {
        Err(Errno::NOTDIR)
    }
}

/// Opens a folder by its path; a link counts as what it leads to, for owners are not looked at.
pub(crate) fn open_folder_itself(path: &Path) -> Result<Descriptor, Errno> {
    open_folder(path)
}

/// Links are not told apart by their paths.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub(crate) fn link_at(_: &Path) -> Result<Option<Facts>, Errno> {
    Ok(None)
}

/// Whether this process is root; this system has no root.
pub fn is_root() -> bool {
    false
}

/// Opens a file for reading by its path.
pub fn open_by_path(path: &Path, _: bool) -> Result<Descriptor, Errno> {
    open_either(path, OpenOptions::new().read(true))
}

/// Opens a file or a folder by its path: without this flag the system opens no folder.
fn open_either(path: &Path, how: &mut OpenOptions) -> Result<Descriptor, Errno> {
    how.custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
        .open(path)
        .map(Descriptor::from)
        .map_err(|error| Errno::of_io(&error))
}

/// Opens a folder inside of another, and not through a link.
pub fn open_folder_in(folder: impl AsHandle, name: &str) -> Result<Descriptor, Errno> {
    let how = How {
        access: FOLDER_ACCESS,
        disposition: FILE_OPEN,
        options: OPTIONS | FILE_DIRECTORY_FILE,
    };
    let opened = open_with(folder, name.as_ref(), how)?;
    if facts(&opened)?.is_link() {
        return Err(Errno::LOOP);
    }
    Ok(opened)
}

/// Makes a folder that is not tenure's.
pub(crate) fn make_parent(path: &Path) -> Result<(), Errno> {
    make_folder(path)
}

/// Makes a folder, with the rights that the one around it gives.
pub fn make_folder(path: &Path) -> Result<(), Errno> {
    std::fs::create_dir(path).map_err(|error| Errno::of_io(&error))
}

/// Makes a folder inside of another.
pub(crate) fn make_folder_in(folder: impl AsHandle, name: &str) -> Result<(), Errno> {
    let how = How {
        access: FOLDER_ACCESS,
        disposition: FILE_CREATE,
        options: OPTIONS | FILE_DIRECTORY_FILE,
    };
    open_with(folder, name.as_ref(), how).map(drop)
}

/// Opens a file in a folder.
pub fn open_file(
    folder: impl AsHandle,
    name: impl AsRef<Path>,
    how: Open,
) -> Result<Descriptor, Errno> {
    let change = FILE_GENERIC_READ | FILE_GENERIC_WRITE;
    let (access, disposition) = match how {
        Open::Read => (FILE_GENERIC_READ, FILE_OPEN),
        Open::Change => (change, FILE_OPEN),
        Open::Create => (change, FILE_OPEN_IF),
        // Without the right to write anywhere else, every write goes to the end.
        Open::Append => (
            FILE_GENERIC_READ | FILE_APPEND_DATA | FILE_WRITE_ATTRIBUTES,
            FILE_OPEN_IF,
        ),
        Open::Extend => (
            FILE_GENERIC_READ | FILE_APPEND_DATA | FILE_WRITE_ATTRIBUTES,
            FILE_OPEN,
        ),
        Open::New => (change, FILE_CREATE),
    };
    let creates = matches!(how, Open::Create | Open::Append | Open::New);
    let how = How {
        access,
        disposition,
        options: OPTIONS | FILE_NON_DIRECTORY_FILE,
    };
    let folder = folder.as_handle();
    let opened = patiently(
        || open_with(folder, name.as_ref(), how),
        |errno| creates && errno == Errno::GOING,
    );
    let opened = match opened {
        Err(Errno::GOING) if !creates => return Err(Errno::NOENT),
        other => other?,
    };
    if facts(&opened)?.is_link() {
        return Err(Errno::LOOP);
    }
    Ok(opened)
}

/// Opens a file again, under an open file of its own, for reading or for changing. A copy of the
/// handle would share its locks.
pub fn reopen(file: BorrowedDescriptor<'_>, changes: bool) -> io::Result<Descriptor> {
    let access = if changes {
        FILE_GENERIC_READ | FILE_GENERIC_WRITE
    } else {
        FILE_GENERIC_READ
    };
    Ok(raw::reopen(file, access)?)
}

/// Handles have no order.
pub fn moved_above(descriptor: Descriptor, _: i32) -> Descriptor {
    descriptor
}

/// A file has the rights that its folder gives.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub fn keep_to_owner(_: impl AsHandle) -> Result<(), Errno> {
    Ok(())
}

/// A file has the rights that its folder gives.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub fn share(_: impl AsHandle, _: Sharing) -> Result<(), Errno> {
    Ok(())
}

/// A folder has the rights that the one around it gives.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub(crate) fn share_folder(_: impl AsHandle, _: &Facts) -> Result<(), Errno> {
    Ok(())
}

/// A file has the rights that its folder gives.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub fn share_within(_: &Facts, _: impl AsHandle) -> Result<(), Errno> {
    Ok(())
}

/// A file has the rights that its folder gives.
#[allow(clippy::unnecessary_wraps, reason = "one surface")]
pub fn share_new(_: impl AsHandle, _: Sharing, _: Option<u32>) -> Result<(), Errno> {
    Ok(())
}

/// Owners are not looked at.
pub(crate) fn give_folder(_: u32, _: &Descriptor) {}

/// Shows the first `N` bytes of a file, or as many as it has.
pub fn with_start<const N: usize, R>(
    file: impl AsHandle,
    look: impl FnOnce(&[u8]) -> R,
) -> Result<R, Errno> {
    let mut space = [0; N];
    let length = raw::read(file.as_handle(), &mut space, Some(0))?;
    Ok(look(space.get(..length).unwrap_or_default()))
}

/// Reads from an offset on.
pub fn read_at(file: impl AsHandle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    raw::read(file.as_handle(), buffer, Some(offset))
}

/// Reads on from where the file stands.
pub fn read(file: impl AsHandle, buffer: &mut [u8]) -> Result<usize, Errno> {
    raw::read(file.as_handle(), buffer, None)
}

/// Writes from an offset on.
pub fn write_at(file: impl AsHandle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    raw::write(file.as_handle(), bytes, Some(offset))
}

/// Writes bytes that lie apart. The system takes those that come first, and the caller asks again.
pub fn write_parts_at(
    file: impl AsHandle,
    parts: &[io::IoSlice<'_>],
    offset: u64,
) -> Result<usize, Errno> {
    let first = parts.iter().find(|part| !part.is_empty());
    first.map_or(Ok(0), |part| write_at(file, part, offset))
}

/// Writes where the file stands: at its end, if it was opened for appending.
pub fn write(file: impl AsHandle, bytes: &[u8]) -> Result<usize, Errno> {
    raw::write(file.as_handle(), bytes, None)
}

/// Writes to stdout, past all buffers.
pub fn write_stdout(bytes: &[u8]) -> Result<usize, Errno> {
    raw::write(io::stdout().as_handle(), bytes, None)
}

/// Cuts a file to a length.
pub fn cut(file: impl AsHandle, length: u64) -> Result<(), Errno> {
    raw::set_length(file.as_handle(), length)
}

/// Sets a file's time of change to now, and changes nothing else.
pub fn touch(file: impl AsHandle) -> Result<(), Errno> {
    raw::set_written(file.as_handle(), raw::wall())
}

/// Waits until the content of a file is on the disk.
pub fn sync(file: impl AsHandle) -> Result<(), Errno> {
    raw::flush(file.as_handle())
}

/// Waits until the names in a folder are on the disk, if the system can be asked for that. NTFS writes them
/// to its journal in the order in which they were made. If the system cannot be asked, that journal has to
/// do.
pub fn sync_folder(folder: impl AsHandle) -> Result<(), Errno> {
    let flushed = raw::reopen(folder.as_handle(), FILE_GENERIC_READ | FILE_GENERIC_WRITE)
        .and_then(|opened| raw::flush(opened.as_handle()));
    match flushed {
        Err(
            Errno(ERROR_INVALID_HANDLE | ERROR_CALL_NOT_IMPLEMENTED)
            | Errno::NOSYS
            | Errno::NOTSUP
            | Errno::ACCESS,
        ) => Ok(()),
        other => other,
    }
}

/// Whether an error says that the system does not know the request.
fn is_unknown(errno: Errno) -> bool {
    matches!(
        errno,
        Errno(ERROR_CALL_NOT_IMPLEMENTED) | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL
    )
}

fn open_to_rename(folder: BorrowedDescriptor<'_>, name: &Path) -> Result<Descriptor, Errno> {
    let how = How {
        access: DELETE | FILE_READ_ATTRIBUTES | SYNCHRONIZE,
        disposition: FILE_OPEN,
        options: OPTIONS,
    };
    match open_with(folder, name, how) {
        Err(Errno::GOING) => Err(Errno::NOENT),
        other => other,
    }
}

/// Removes a file. Its name is free when this returns, even if other processes still have the file open. If
/// the system cannot do that, the file is renamed first.
pub fn remove(folder: impl AsHandle, name: impl AsRef<Path>) -> Result<(), Errno> {
    let folder = folder.as_handle();
    let file = open_to_rename(folder, name.as_ref())?;
    match raw::remove(file.as_handle(), Removal::Posix) {
        Err(errno) if is_unknown(errno) => {}
        other => return other,
    }
    let mut bytes = [0; 8];
    raw::random(&mut bytes)?;
    let aside = format!(
        "{}.{:016x}.gone",
        text(name.as_ref())?,
        u64::from_ne_bytes(bytes)
    );
    patiently(
        || raw::rename(file.as_handle(), folder, &aside, Target::Kept),
        Errno::is_in_use,
    )?;
    raw::remove(file.as_handle(), Removal::WhenClosed)
}

/// Removes a folder in which nothing is.
pub(crate) fn remove_folder(folder: impl AsHandle, name: &str) -> Result<(), Errno> {
    remove(folder, name)
}

/// Gives a file another name, in place of any file that has it.
pub fn rename(
    from_folder: impl AsHandle,
    from: impl AsRef<Path>,
    to_folder: impl AsHandle,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (folder, to) = (to_folder.as_handle(), text(to.as_ref())?);
    let file = open_to_rename(from_folder.as_handle(), from.as_ref())?;
    // A process that has the old file open may keep it from being replaced.
    let is_in_the_way = |errno: Errno| errno.is_in_use() || errno == Errno::ACCESS;
    patiently(
        || match raw::rename(file.as_handle(), folder, to, Target::Replaced) {
            Err(errno) if is_unknown(errno) => {
                raw::rename(file.as_handle(), folder, to, Target::ReplacedIfClosed)
            }
            other => other,
        },
        is_in_the_way,
    )
}

/// Gives a file another name, if nothing has it.
pub fn rename_new(
    from_folder: impl AsHandle,
    from: impl AsRef<Path>,
    to_folder: impl AsHandle,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (folder, to) = (to_folder.as_handle(), text(to.as_ref())?);
    let file = open_to_rename(from_folder.as_handle(), from.as_ref())?;
    patiently(
        || raw::rename(file.as_handle(), folder, to, Target::Kept),
        Errno::is_in_use,
    )
}

/// Cannot be done here: see [`EXCHANGES`].
pub fn exchange(
    _: impl AsHandle,
    _: impl AsRef<Path>,
    _: impl AsHandle,
    _: impl AsRef<Path>,
) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Not needed here: a rename that does not replace is known to every file system.
pub fn link(
    _: impl AsHandle,
    _: impl AsRef<Path>,
    _: impl AsHandle,
    _: impl AsRef<Path>,
) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Shows every name in a folder.
pub fn each_name(folder: impl AsHandle, each: &mut dyn FnMut(&str)) -> Result<(), Errno> {
    each_item(folder, &mut |name, _| each(name))
}

/// Shows every name in a folder but those of folders.
pub fn each_file(folder: impl AsHandle, each: &mut dyn FnMut(&str)) -> Result<(), Errno> {
    each_item(folder, &mut |name, is_folder| {
        if !is_folder {
            each(name);
        }
    })
}

/// Shows every name, and whether it is a folder's.
fn each_item(folder: impl AsHandle, each: &mut dyn FnMut(&str, bool)) -> Result<(), Errno> {
    // Of its own, because an open folder remembers how far it was read.
    let own = raw::reopen_folder(folder.as_handle(), FOLDER_ACCESS)?;
    loop {
        let block = raw::next_names(own.as_handle())?;
        if block.is_empty() {
            return Ok(());
        }
        let mut start = 0;
        loop {
            let number = |at: usize| -> usize {
                let bytes = block.get(start + at..start + at + 4);
                bytes
                    .and_then(|bytes| bytes.try_into().ok())
                    .map_or(0, |bytes| u32::from_ne_bytes(bytes) as usize)
            };
            // FILE_FULL_DIR_INFO: how far the next is, at 56 the attributes, at 60 the name's length in
            // bytes, at 68 the name.
            let (next, attributes, length) = (number(0), number(56), number(60));
            let name = block
                .get(start + 68..start + 68 + length)
                .unwrap_or_default();
            let name = wide_text(name);
            if name != "." && name != ".." {
                each(&name, attributes & FILE_ATTRIBUTE_DIRECTORY as usize != 0);
            }
            if next == 0 {
                break;
            }
            start += next;
        }
    }
}

/// The text that the system keeps in these bytes.
pub(crate) fn wide_text(bytes: &[u8]) -> String {
    let wide: Vec<u16> = bytes
        .chunks_exact(2)
        .filter_map(|pair| pair.try_into().ok().map(u16::from_ne_bytes))
        .collect();
    String::from_utf16_lossy(&wide)
}

/// The byte that stands for a whole file. It lies far behind the content, because other processes cannot
/// read a locked range here.
const WHOLE: i64 = 1 << 62;

/// Locks a whole file against others who do so, if that is possible at once.
pub fn try_lock_file(file: impl AsHandle) -> Result<bool, Errno> {
    raw::try_lock(file.as_handle(), WHOLE, 1, true)
}

/// Lets go of it.
pub fn unlock_file(file: impl AsHandle) -> Result<(), Errno> {
    raw::unlock(file.as_handle(), WHOLE, 1)
}

/// Takes a byte if that is possible at once. False if another open file has it.
pub fn try_lock_byte(
    file: BorrowedDescriptor<'_>,
    byte: i64,
    exclusive: bool,
) -> Result<bool, Errno> {
    raw::try_lock(file, byte, 1, exclusive)
}

/// Takes a byte, sleeping in the kernel for as long as another open file has it.
pub fn lock_byte(file: BorrowedDescriptor<'_>, byte: i64, exclusive: bool) -> Result<(), Errno> {
    raw::lock(file, byte, 1, exclusive)
}

/// Lets go of a byte. Letting go of one that is not held is no error.
pub fn unlock_byte(file: BorrowedDescriptor<'_>, byte: i64) -> Result<(), Errno> {
    raw::unlock(file, byte, 1)
}

/// Takes two neighbouring bytes in one step: not possible here, where each is let go as it was taken.
#[allow(clippy::unnecessary_wraps, reason = "one surface with what Unix does")]
pub fn try_lock_both(_: BorrowedDescriptor<'_>, _: i64) -> Result<bool, Errno> {
    Ok(false)
}

/// Lets go of the second of them, the only one that can be held.
pub fn unlock_both(file: BorrowedDescriptor<'_>, second: i64) -> Result<(), Errno> {
    unlock_byte(file, second)
}

/// Lets go of the guard, the only byte here that is on the same open file as others could be. `first` lies
/// one before it.
pub fn unlock_from(file: BorrowedDescriptor<'_>, first: i64) -> Result<(), Errno> {
    unlock_both(file, first + 1)
}

/// Whether another open file has the byte in any way. Takes it for an instant.
pub fn is_byte_shared(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
    let taken = try_lock_byte(file, byte, true)?;
    if taken {
        unlock_byte(file, byte)?;
    }
    Ok(!taken)
}

/// Whether another open file has the byte exclusively. Takes it shared for an instant, because there is
/// no other way to look; this open file itself must not have it.
pub fn is_byte_locked(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
    look(file, byte, 1)
}

/// Whether another open file has any byte from this one on.
pub fn is_any_locked_from(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
    look(file, byte, i64::MAX.abs_diff(byte))
}

fn look(file: BorrowedDescriptor<'_>, first: i64, count: u64) -> Result<bool, Errno> {
    let free = raw::try_lock(file, first, count, false)?;
    if free {
        raw::unlock(file, first, count)?;
    }
    Ok(!free)
}

/// Waits until one of the descriptors is signalled, at most for `time`. True if one is.
pub fn poll(descriptors: &[BorrowedDescriptor<'_>], time: Duration) -> Result<bool, Errno> {
    /// How long each part is waited for, if there are more descriptors than one call can wait for.
    const PART: Duration = Duration::from_millis(50);

    if descriptors.is_empty() {
        std::thread::sleep(time);
        return Ok(false);
    }
    match descriptors.get(..raw::WAITED_MAX) {
        // An early look does no harm.
        Some(some) if some.len() < descriptors.len() => {
            raw::wait(some, time.min(PART)).map(|_| true)
        }
        _ => raw::wait(descriptors, time),
    }
}

/// A descriptor that can be read once so much time has passed: there is none.
pub fn alarm(_: Duration) -> Option<Descriptor> {
    None
}

#[derive(Debug)]
struct Rung {
    event: Descriptor,
    is_over: AtomicBool,
}

/// Reads all that a descriptor has to tell. No store of this system has anything to tell by one.
pub fn read_all(_: &Descriptor) -> Notice {
    Notice::Nothing
}

/// The end of a bell that is rung. Dropping it is heard as well.
#[derive(Debug)]
pub struct Ringer(Arc<Rung>);

/// The end that hears it, and can be polled.
#[derive(Debug)]
pub struct Bell(Arc<Rung>);

/// A bell that wakes a sleeper.
pub fn bell() -> io::Result<(Bell, Ringer)> {
    let rung = Arc::new(Rung {
        event: raw::event()?,
        is_over: AtomicBool::new(false),
    });
    Ok((Bell(Arc::clone(&rung)), Ringer(rung)))
}

impl Ringer {
    /// Wakes the sleeper, or keeps it from falling asleep.
    pub fn ring(&self) {
        // An event that is open can be set.
        let _ = raw::set_event(self.0.event.as_handle());
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }
}

impl Bell {
    /// What to poll.
    pub fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.0.event.as_handle()
    }

    /// Takes in all that was rung. True once no [`Ringer`] is left.
    pub fn hear(&self) -> bool {
        // Before the look, so that any later ring wakes the sleeper again.
        let _ = raw::reset_event(self.0.event.as_handle());
        self.0.is_over.load(Ordering::SeqCst)
    }
}

/// Nothing can be watched here, so a caller looks again after a pause.
#[derive(Debug)]
pub struct Watch(Infallible);

impl Watch {
    /// Makes no watch here.
    ///
    /// # Errors
    /// - Always: the system has none.
    pub fn new() -> Result<Self, Errno> {
        Err(Errno(ERROR_CALL_NOT_IMPLEMENTED))
    }

    /// Would watch a file.
    pub fn add(&self, _: &Path, _: WatchFor) -> Result<(), Errno> {
        match self.0 {}
    }

    /// Descriptor that would be polled.
    pub fn descriptor(&self) -> BorrowedDescriptor<'_> {
        match self.0 {}
    }

    /// Would take in all that it has to tell.
    pub fn settle(&self) {
        match self.0 {}
    }

    /// Descriptor for a caller that would poll it itself.
    pub fn into_descriptor(self) -> Descriptor {
        match self.0 {}
    }
}

/// Random bytes of the system's.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    Ok(raw::random(bytes)?)
}

/// No folder is found to be shared here, so no user needs a file name of its own.
pub fn user_number() -> u32 {
    0
}

/// The kind of file system if other machines, or another program, stand behind it.
pub fn remote_kind_of(file: impl AsHandle) -> Result<Option<&'static str>, Errno> {
    /// `FILE_REMOTE_DEVICE`, and the type of a device that is a network file system.
    const REMOTE: u32 = 0x10;
    const NETWORK: u32 = 0x14;
    let (kind, characteristics) = raw::device(file.as_handle())?;
    let is_remote = kind == NETWORK || characteristics & REMOTE != 0;
    Ok(is_remote.then_some("a network file system"))
}

/// A system error in the system's own words; errors have no names here that people use.
pub fn error_text(error: &io::Error) -> String {
    error.to_string()
}
