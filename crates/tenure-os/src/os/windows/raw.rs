//! The system's own calls, each behind a safe function. This is the only unsafe code of the library on this
//! system. It decides nothing: what a call fills is handed out as plain bytes, and safe code takes them
//! apart.
//!
//! Files are opened by the native call, because only that opens a name relative to an open folder.

use super::Errno;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::Duration;
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_DIRECTORY_FILE, FILE_OPEN, FILE_SYNCHRONOUS_IO_NONALERT, FileBasicInformation,
    FileDispositionInformation, FileDispositionInformationEx, FileFsDeviceInformation,
    FileInternalInformation, FileRenameInformation, FileRenameInformationEx,
    FileStandardInformation, NtCreateFile, NtQueryInformationFile, NtQueryVolumeInformationFile,
    NtSetInformationFile,
};
use windows_sys::Wdk::System::SystemInformation::{
    NtQuerySystemInformation, SystemProcessInformation,
};
use windows_sys::Wdk::System::SystemServices::FILE_FS_DEVICE_INFORMATION;
use windows_sys::Wdk::System::Threading::{
    NtQueryInformationProcess, ProcessCommandLineInformation,
};
use windows_sys::Win32::Foundation::{
    ERROR_HANDLE_EOF, ERROR_LOCK_VIOLATION, ERROR_NOT_LOCKED, FILETIME, GetLastError, HANDLE,
    INVALID_HANDLE_VALUE, NTSTATUS, RtlNtStatusToDosError, STATUS_DELETE_PENDING,
    STATUS_FILE_IS_A_DIRECTORY, STATUS_INFO_LENGTH_MISMATCH, UNICODE_STRING, WAIT_FAILED,
    WAIT_TIMEOUT,
};
use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_BASIC_INFO, FILE_END_OF_FILE_INFO, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FILE_STANDARD_INFO, FileEndOfFileInfo, FileFullDirectoryInfo, FlushFileBuffers,
    GetFileInformationByHandleEx, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
    ReOpenFile, ReadFile, SetFileInformationByHandle, SetFileTime, UnlockFileEx, WriteFile,
};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::Registry::{
    HKEY_LOCAL_MACHINE, RRF_RT_ANY, RRF_RT_REG_SZ, RegGetValueW,
};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetSystemTimePreciseAsFileTime,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, GetProcessId, GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_SYNCHRONIZE, ResetEvent, SetEvent, WaitForMultipleObjects,
};

/// Other processes may read, write, rename and remove files that this process has open, as on Unix.
const SHARED: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

fn last() -> Errno {
    // SAFETY: reads a value of this thread's own.
    Errno::of(unsafe { GetLastError() })
}

fn done(answer: i32) -> Result<(), Errno> {
    if answer == 0 { Err(last()) } else { Ok(()) }
}

fn of_status(status: NTSTATUS) -> Result<(), Errno> {
    match status {
        0.. => Ok(()),
        // The system's own translation of these two is *access denied*, which means something else.
        STATUS_DELETE_PENDING => Err(Errno::GOING),
        STATUS_FILE_IS_A_DIRECTORY => Err(Errno::ISDIR),
        // SAFETY: takes and gives a number.
        status => Err(Errno::of(unsafe { RtlNtStatusToDosError(status) })),
    }
}

fn raw(handle: BorrowedHandle<'_>) -> HANDLE {
    handle.as_raw_handle()
}

/// What is opened, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) access: u32,
    pub(super) disposition: u32,
    pub(super) options: u32,
}

/// Opens a name relative to a folder.
pub(super) fn open_in(
    folder: BorrowedHandle<'_>,
    name: &str,
    how: How,
) -> Result<OwnedHandle, Errno> {
    let mut wide: Vec<u16> = name.encode_utf16().collect();
    let bytes = u16::try_from(wide.len() * 2).map_err(|_| Errno::INVAL)?;
    let name = UNICODE_STRING {
        Length: bytes,
        MaximumLength: bytes,
        Buffer: wide.as_mut_ptr(),
    };
    let attributes = OBJECT_ATTRIBUTES {
        Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).unwrap_or(0),
        RootDirectory: raw(folder),
        ObjectName: &raw const name,
        // Case does not count, as everywhere on this system; the handle is not inherited.
        Attributes: 0x40,
        SecurityDescriptor: ptr::null(),
        SecurityQualityOfService: ptr::null(),
    };
    let mut handle: HANDLE = ptr::null_mut();
    let mut status = IO_STATUS_BLOCK::default();
    // SAFETY: every pointer leads to a value above that lives to the end of this function, the name's
    // length is that of its buffer, and the folder is open for as long as it is borrowed.
    of_status(unsafe {
        NtCreateFile(
            &raw mut handle,
            how.access,
            &raw const attributes,
            &raw mut status,
            ptr::null(),
            0x80, // an ordinary file
            SHARED,
            how.disposition,
            how.options,
            ptr::null(),
            0,
        )
    })?;
    // SAFETY: the call succeeded, so this is an open handle that nothing else owns.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Opens a file again, under an open file of its own.
pub(super) fn reopen(file: BorrowedHandle<'_>, access: u32) -> Result<OwnedHandle, Errno> {
    // SAFETY: the file is open for as long as it is borrowed; the rest are numbers.
    let handle = unsafe { ReOpenFile(raw(file), access, SHARED, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(last());
    }
    // SAFETY: the call succeeded, so this is an open handle that nothing else owns.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Opens a folder again, under an open folder of its own, which is read from its beginning.
pub(super) fn reopen_folder(folder: BorrowedHandle<'_>, access: u32) -> Result<OwnedHandle, Errno> {
    let how = How {
        access,
        disposition: FILE_OPEN,
        options: FILE_DIRECTORY_FILE | FILE_SYNCHRONOUS_IO_NONALERT,
    };
    open_in(folder, "", how)
}

/// What a file is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Information {
    pub(super) attributes: u32,
    /// When it was written last, in units of 100 ns since 1601.
    pub(super) written: u64,
    pub(super) size: u64,
    pub(super) names: u32,
    /// Whether the file is removed as soon as no process has it open.
    pub(super) is_going: bool,
    /// The file's number on its volume.
    pub(super) number: u64,
}

/// Looks at a file. It does not use the call that also asks for the volume: that call goes by a name which
/// the file may not have any more.
pub(super) fn information(file: BorrowedHandle<'_>) -> Result<Information, Errno> {
    let mut basic = FILE_BASIC_INFO::default();
    let mut standard = FILE_STANDARD_INFO::default();
    let mut number = 0_u64;
    let size = u32::try_from(size_of::<FILE_BASIC_INFO>()).unwrap_or(0);
    // SAFETY: `basic` is a structure of the kind and size that are named.
    unsafe { query(file, FileBasicInformation, (&raw mut basic).cast(), size) }?;
    let size = u32::try_from(size_of::<FILE_STANDARD_INFO>()).unwrap_or(0);
    // SAFETY: the same.
    unsafe {
        query(
            file,
            FileStandardInformation,
            (&raw mut standard).cast(),
            size,
        )
    }?;
    // SAFETY: what is answered is one number of eight bytes.
    unsafe { query(file, FileInternalInformation, (&raw mut number).cast(), 8) }?;
    Ok(Information {
        attributes: basic.FileAttributes,
        written: basic.LastWriteTime.unsigned_abs(),
        size: standard.EndOfFile.unsigned_abs(),
        names: standard.NumberOfLinks,
        is_going: standard.DeletePending,
        number,
    })
}

/// Asks for one kind of facts about a file.
///
/// # Safety
/// `found` leads to `size` writable bytes, which hold what the system answers for `class`.
unsafe fn query(
    file: BorrowedHandle<'_>,
    class: i32,
    found: *mut core::ffi::c_void,
    size: u32,
) -> Result<(), Errno> {
    let mut status = IO_STATUS_BLOCK::default();
    // SAFETY: the file is open for as long as it is borrowed; the rest is the caller's promise.
    of_status(unsafe { NtQueryInformationFile(raw(file), &raw mut status, found, size, class) })
}

/// The device that a file is on: its type and its characteristics.
pub(super) fn device(file: BorrowedHandle<'_>) -> Result<(u32, u32), Errno> {
    let mut found = FILE_FS_DEVICE_INFORMATION::default();
    let mut status = IO_STATUS_BLOCK::default();
    // SAFETY: the file is open, and `found` is a structure of the kind and size that are named.
    of_status(unsafe {
        NtQueryVolumeInformationFile(
            raw(file),
            &raw mut status,
            (&raw mut found).cast(),
            u32::try_from(size_of::<FILE_FS_DEVICE_INFORMATION>()).unwrap_or(0),
            FileFsDeviceInformation,
        )
    })?;
    Ok((found.DeviceType, found.Characteristics))
}

fn at(offset: u64) -> OVERLAPPED {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the number"
    )]
    let halves = OVERLAPPED_0_0 {
        Offset: offset as u32,
        OffsetHigh: (offset >> 32) as u32,
    };
    OVERLAPPED {
        Internal: 0,
        InternalHigh: 0,
        Anonymous: OVERLAPPED_0 { Anonymous: halves },
        hEvent: ptr::null_mut(),
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads from an offset on, or on from where the file stands. At its end, nothing.
pub(super) fn read(
    file: BorrowedHandle<'_>,
    buffer: &mut [u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    let mut count = 0;
    let mut place = offset.map(at);
    let place = place.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the file is open and was not opened for overlapped use, so the call is over when it
    // returns; the buffer is as long as is said, and `place` lives as long as this function.
    let answer = done(unsafe {
        ReadFile(
            raw(file),
            buffer.as_mut_ptr(),
            length(buffer.len()),
            &raw mut count,
            place,
        )
    });
    match answer {
        Err(errno) if errno == Errno::of(ERROR_HANDLE_EOF) => Ok(0),
        answer => answer.map(|()| count as usize),
    }
}

/// Writes from an offset on, or where the file stands.
pub(super) fn write(
    file: BorrowedHandle<'_>,
    bytes: &[u8],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    let mut count = 0;
    let mut place = offset.map(at);
    let place = place.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: as for reading.
    done(unsafe {
        WriteFile(
            raw(file),
            bytes.as_ptr(),
            length(bytes.len()),
            &raw mut count,
            place,
        )
    })?;
    Ok(count as usize)
}

/// Sets the length of a file.
pub(super) fn set_length(file: BorrowedHandle<'_>, length: u64) -> Result<(), Errno> {
    let end = FILE_END_OF_FILE_INFO {
        EndOfFile: i64::try_from(length).map_err(|_| Errno::INVAL)?,
    };
    // SAFETY: the file is open, and `end` is a structure of the kind and size that are named.
    done(unsafe {
        SetFileInformationByHandle(
            raw(file),
            FileEndOfFileInfo,
            (&raw const end).cast(),
            u32::try_from(size_of::<FILE_END_OF_FILE_INFO>()).unwrap_or(0),
        )
    })
}

/// Waits until what was written is on the disk.
pub(super) fn flush(file: BorrowedHandle<'_>) -> Result<(), Errno> {
    // SAFETY: the file is open for as long as it is borrowed.
    done(unsafe { FlushFileBuffers(raw(file)) })
}

/// Sets the time of the last write, in units of 100 ns since 1601.
pub(super) fn set_written(file: BorrowedHandle<'_>, time: u64) -> Result<(), Errno> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the number"
    )]
    let time = FILETIME {
        dwLowDateTime: time as u32,
        dwHighDateTime: (time >> 32) as u32,
    };
    // SAFETY: the file is open, `time` lives to the end of the call, and null means *as it is*.
    done(unsafe { SetFileTime(raw(file), ptr::null(), ptr::null(), &raw const time) })
}

/// Bytes as words, so that they are aligned for every structure.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u64::from_ne_bytes(word)
        })
        .collect()
}

/// Words as the bytes that they are.
fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// How a rename treats what has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The rename fails.
    Kept,
    /// The target is replaced, even while a process has it open.
    Replaced,
    /// The target is replaced, on systems that cannot do so while a process has it open.
    ReplacedIfClosed,
}

/// Renames an open file.
pub(super) fn rename(
    file: BorrowedHandle<'_>,
    folder: BorrowedHandle<'_>,
    name: &str,
    target: Target,
) -> Result<(), Errno> {
    let (class, flags) = match target {
        Target::Kept => (FileRenameInformation, 0_u32),
        Target::Replaced => (FileRenameInformationEx, 3), // replace, by POSIX rules
        Target::ReplacedIfClosed => (FileRenameInformation, 1),
    };
    // FILE_RENAME_INFORMATION: flags, the folder's handle, the length of the name, the name; each at
    // its own alignment.
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_ne_bytes).collect();
    let word = size_of::<usize>();
    let mut bytes = vec![0; 2 * word + 4];
    for (at, value) in [
        (0, flags.to_ne_bytes().to_vec()),
        (word, (raw(folder) as usize).to_ne_bytes().to_vec()),
        (2 * word, length(name.len()).to_ne_bytes().to_vec()),
    ] {
        bytes.splice(at..at + value.len(), value);
    }
    bytes.extend_from_slice(&name);
    let size = length(bytes.len());
    let words = aligned(&bytes);
    set(file, class, &words, size)
}

/// How a file is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The name is free at once, even if processes still have the file open.
    Posix,
    /// The name is free once no process has the file open.
    WhenClosed,
}

/// Has an open file removed when it is closed.
pub(super) fn remove(file: BorrowedHandle<'_>, removal: Removal) -> Result<(), Errno> {
    let (class, flags, size) = match removal {
        // Delete, by POSIX rules, read-only or not.
        Removal::Posix => (FileDispositionInformationEx, 0x13_u32, 4),
        Removal::WhenClosed => (FileDispositionInformation, 1, 1),
    };
    set(file, class, &aligned(&flags.to_le_bytes()), size)
}

fn set(file: BorrowedHandle<'_>, class: i32, words: &[u64], size: u32) -> Result<(), Errno> {
    let mut status = IO_STATUS_BLOCK::default();
    // SAFETY: the file is open; `words` has at least `size` bytes, laid out as `class` wants them, and
    // is only read.
    of_status(unsafe {
        NtSetInformationFile(
            raw(file),
            &raw mut status,
            words.as_ptr().cast(),
            size,
            class,
        )
    })
}

/// The next names in a folder that is read by this handle, as a block of `FILE_FULL_DIR_INFO`; empty
/// after the last.
pub(super) fn next_names(folder: BorrowedHandle<'_>) -> Result<Vec<u8>, Errno> {
    let mut words = vec![0_u64; 2048];
    // SAFETY: the folder is open, and the buffer has the size that is named.
    let answer = done(unsafe {
        GetFileInformationByHandleEx(
            raw(folder),
            FileFullDirectoryInfo,
            words.as_mut_ptr().cast(),
            length(words.len() * 8),
        )
    });
    match answer {
        Ok(()) => Ok(bytes_of(&words)),
        Err(Errno::NO_MORE) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

fn lock_flags(exclusive: bool) -> u32 {
    if exclusive {
        LOCKFILE_EXCLUSIVE_LOCK
    } else {
        0
    }
}

fn lock_range(file: BorrowedHandle<'_>, first: i64, count: u64, flags: u32) -> Result<(), Errno> {
    let mut place = at(first.unsigned_abs());
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the number"
    )]
    let (low, high) = (count as u32, (count >> 32) as u32);
    // SAFETY: the file is open and was not opened for overlapped use, so the call is over when it
    // returns, and `place` lives as long.
    done(unsafe { LockFileEx(raw(file), flags, 0, low, high, &raw mut place) })
}

/// Takes a range if that is possible at once. False if another open file has a part of it.
pub(super) fn try_lock(
    file: BorrowedHandle<'_>,
    first: i64,
    count: u64,
    exclusive: bool,
) -> Result<bool, Errno> {
    let flags = LOCKFILE_FAIL_IMMEDIATELY | lock_flags(exclusive);
    match lock_range(file, first, count, flags) {
        Ok(()) => Ok(true),
        Err(errno) if errno == Errno::of(ERROR_LOCK_VIOLATION) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes a range, sleeping in the kernel for as long as another open file has a part of it.
pub(super) fn lock(
    file: BorrowedHandle<'_>,
    first: i64,
    count: u64,
    exclusive: bool,
) -> Result<(), Errno> {
    lock_range(file, first, count, lock_flags(exclusive))
}

/// Lets go of a range. Letting go of one that is not held is no error.
pub(super) fn unlock(file: BorrowedHandle<'_>, first: i64, count: u64) -> Result<(), Errno> {
    let mut place = at(first.unsigned_abs());
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the number"
    )]
    let (low, high) = (count as u32, (count >> 32) as u32);
    // SAFETY: as for locking.
    match done(unsafe { UnlockFileEx(raw(file), 0, low, high, &raw mut place) }) {
        Err(errno) if errno == Errno::of(ERROR_NOT_LOCKED) => Ok(()),
        other => other,
    }
}

/// An event that stays set until it is reset.
pub(super) fn event() -> Result<OwnedHandle, Errno> {
    // SAFETY: null means no name and the usual rights.
    let handle = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
    if handle.is_null() {
        return Err(last());
    }
    // SAFETY: the call succeeded, so this is an open handle that nothing else owns.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Sets an event.
pub(super) fn set_event(event: BorrowedHandle<'_>) -> Result<(), Errno> {
    // SAFETY: the event is open for as long as it is borrowed.
    done(unsafe { SetEvent(raw(event)) })
}

/// Resets an event.
pub(super) fn reset_event(event: BorrowedHandle<'_>) -> Result<(), Errno> {
    // SAFETY: the event is open for as long as it is borrowed.
    done(unsafe { ResetEvent(raw(event)) })
}

/// How many handles can be waited for at once.
pub(super) const WAITED_MAX: usize = 64;

/// Waits until one of up to [`WAITED_MAX`] handles is signalled. False after `time`.
pub(crate) fn wait(handles: &[BorrowedHandle<'_>], time: Duration) -> Result<bool, Errno> {
    // Rounded up: a caller that waits for an instant must not come before it.
    let millis = time.as_nanos().div_ceil(1_000_000);
    let millis = u32::try_from(millis).unwrap_or(u32::MAX).min(u32::MAX - 1);
    let raws: Vec<HANDLE> = handles.iter().map(|handle| raw(*handle)).collect();
    // SAFETY: the handles are open for as long as they are borrowed, and there are as many as is said.
    match unsafe { WaitForMultipleObjects(length(raws.len()), raws.as_ptr(), 0, millis) } {
        WAIT_FAILED => Err(last()),
        WAIT_TIMEOUT => Ok(false),
        _ => Ok(true),
    }
}

/// Fills a buffer with random bytes.
pub(super) fn random(bytes: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: the buffer has the length that is named, and null with this flag means the system's
    // own generator.
    of_status(unsafe {
        BCryptGenRandom(
            ptr::null_mut(),
            bytes.as_mut_ptr(),
            length(bytes.len()),
            BCRYPT_USE_SYSTEM_PREFERRED_RNG,
        )
    })
}

/// The wall clock as files are stamped: since 1601, in units of 100 ns.
pub(crate) fn wall() -> u64 {
    let mut now = FILETIME::default();
    // SAFETY: it writes one time to where it is told, and cannot fail.
    unsafe { GetSystemTimePreciseAsFileTime(&raw mut now) };
    (u64::from(now.dwHighDateTime) << 32) | u64::from(now.dwLowDateTime)
}

/// Milliseconds since the machine was started, sleep included. By the performance counter, because the
/// coarser clocks of this system step by up to 16 ms, and the age of a record must not.
pub(crate) fn since_boot_ms() -> u64 {
    let (mut count, mut each_second) = (0, 0);
    // SAFETY: both write one number to where they are told; neither fails on any system that this is
    // built for, and if one did, its number would stay 0.
    let known = unsafe {
        QueryPerformanceCounter(&raw mut count) != 0
            && QueryPerformanceFrequency(&raw mut each_second) != 0
    };
    let millis = i128::from(count) * 1_000 / i128::from(each_second.max(1));
    if known {
        u64::try_from(millis).unwrap_or(0)
    } else {
        0
    }
}

/// The name of this computer.
pub(crate) fn computer_name() -> Option<String> {
    let mut buffer = [0_u16; 256];
    let mut size = length(buffer.len());
    // SAFETY: the buffer has the length that is named.
    done(unsafe {
        GetComputerNameExW(
            ComputerNamePhysicalDnsHostname,
            buffer.as_mut_ptr(),
            &raw mut size,
        )
    })
    .ok()?;
    let name = String::from_utf16_lossy(buffer.get(..size as usize)?);
    (!name.is_empty()).then_some(name)
}

/// Whether the machine's part of the registry has a value, of whatever kind.
pub(crate) fn registry_has(key: &str, value: &str) -> bool {
    let (key, value) = (wide(key), wide(value));
    // SAFETY: both names end with a zero, and with null for everything else nothing is written.
    let answer = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            value.as_ptr(),
            RRF_RT_ANY,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    answer == 0
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// A text in the machine's part of the registry.
pub(crate) fn registry_text(key: &str, value: &str) -> Option<String> {
    let (key, value) = (wide(key), wide(value));
    let mut buffer = [0_u16; 256];
    let mut size = length(size_of_val(&buffer));
    // SAFETY: both names end with a zero, and the buffer has the size that is named in bytes.
    let answer = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            value.as_ptr(),
            RRF_RT_REG_SZ,
            ptr::null_mut(),
            buffer.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let text = buffer.get(..size as usize / 2).filter(|_| answer == 0)?;
    let text = String::from_utf16_lossy(text);
    let text = text.trim_end_matches('\0').trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Opens a process to look at it and to wait for its end; nothing else can be done with the handle.
pub(crate) fn open_process(pid: u32) -> Result<OwnedHandle, Errno> {
    let access = PROCESS_SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION;
    // SAFETY: takes numbers.
    let handle = unsafe { OpenProcess(access, 0, pid) };
    if handle.is_null() {
        return Err(last());
    }
    // SAFETY: the call succeeded, so this is an open handle that nothing else owns.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// The number of an open process.
pub(crate) fn number_of(process: BorrowedHandle<'_>) -> u32 {
    // SAFETY: the process is open for as long as it is borrowed.
    unsafe { GetProcessId(raw(process)) }
}

/// When an open process was started, in units of 100 ns since 1601.
pub(crate) fn started(process: BorrowedHandle<'_>) -> Result<u64, Errno> {
    let mut times = [FILETIME::default(); 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the process is open, and the four are structures of the kind that the call fills.
    done(unsafe {
        GetProcessTimes(
            raw(process),
            ptr::from_mut(created),
            ptr::from_mut(exited),
            ptr::from_mut(kernel),
            ptr::from_mut(user),
        )
    })?;
    Ok(u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime))
}

/// The list of all processes as the system gives it, and where in memory it stood: the names in it are
/// told by their address.
pub(crate) fn processes() -> Result<(Vec<u8>, usize), Errno> {
    let mut words = vec![0_u64; 16 << 10];
    loop {
        let mut size = 0;
        // SAFETY: the buffer has the length that is named.
        let status = unsafe {
            NtQuerySystemInformation(
                SystemProcessInformation,
                words.as_mut_ptr().cast(),
                length(words.len() * 8),
                &raw mut size,
            )
        };
        if status != STATUS_INFO_LENGTH_MISMATCH {
            of_status(status)?;
            return Ok((bytes_of(&words), words.as_ptr() as usize));
        }
        let wanted = (size as usize / 8).max(words.len()) * 2;
        if wanted > 8 << 20 {
            return Err(Errno::NOSPC);
        }
        words.resize(wanted, 0);
    }
}

/// The command line of an open process, where the system tells it, as the system keeps it: a
/// `UNICODE_STRING`, and where in memory it stood.
pub(crate) fn command_line(process: BorrowedHandle<'_>) -> Result<(Vec<u8>, usize), Errno> {
    // More than the longest command line has.
    let mut words = vec![0_u64; 10 << 10];
    let mut size = 0;
    // SAFETY: the process is open, and the buffer has the length that is named.
    of_status(unsafe {
        NtQueryInformationProcess(
            raw(process),
            ProcessCommandLineInformation,
            words.as_mut_ptr().cast(),
            length(words.len() * 8),
            &raw mut size,
        )
    })?;
    Ok((bytes_of(&words), words.as_ptr() as usize))
}

/// Events of the console: how often each kind came, and an event that says so. For the whole process, as
/// the console's handler is.
pub mod console {
    use super::{done, event, raw};
    use crate::os::{Errno, borrow};
    use std::os::windows::io::{BorrowedHandle, OwnedHandle};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use windows_sys::Win32::System::Console::{
        CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler,
    };
    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, ResetEvent, SetEvent, TerminateProcess,
    };

    /// How often Ctrl-C, Ctrl-Break and everything else came since the last look.
    static COUNTS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    static CAME: OnceLock<OwnedHandle> = OnceLock::new();

    /// How long the handler keeps the system from ending the process whose window was closed. The system
    /// waits no longer than about that.
    const CLOSING: Duration = Duration::from_secs(5);

    unsafe extern "system" fn came(kind: u32) -> i32 {
        let (index, is_closing) = match kind {
            CTRL_C_EVENT => (0, false),
            CTRL_BREAK_EVENT => (1, false),
            _ => (2, true),
        };
        if let Some(count) = COUNTS.get(index) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(came) = CAME.get() {
            // SAFETY: what the static has is open for good.
            unsafe { SetEvent(raw(borrow(came))) };
        }
        if is_closing {
            // When this call returns, the system ends the process.
            std::thread::sleep(CLOSING);
        }
        1
    }

    /// The console's events, from now on.
    pub struct Events(&'static OwnedHandle);

    /// Receives them. The system's own reaction to them is not carried out any more.
    pub fn events() -> Result<Events, Errno> {
        let fresh = event()?;
        let came_event = CAME.get_or_init(|| fresh);
        // SAFETY: the handler is a function of this program, and is there to its end.
        done(unsafe { SetConsoleCtrlHandler(Some(came), 1) })?;
        Ok(Events(came_event))
    }

    impl Events {
        /// What to poll.
        pub fn descriptor(&self) -> BorrowedHandle<'_> {
            borrow(self.0)
        }

        /// What has come since the last look: Ctrl-C, Ctrl-Break, the end of window or session.
        pub fn take(&self) -> [u32; 3] {
            // SAFETY: the event is open for good. Before the look, so that any later event rings.
            unsafe { ResetEvent(raw(borrow(self.0))) };
            COUNTS
                .each_ref()
                .map(|count| count.swap(0, Ordering::SeqCst))
        }
    }

    /// Ends the process at once, past everything that would be done at its end.
    pub fn end_process(code: u8) -> ! {
        // SAFETY: ends this process, which has asked for it.
        unsafe { TerminateProcess(GetCurrentProcess(), code.into()) };
        // Not reached; the type wants an end all the same.
        std::process::abort()
    }
}
