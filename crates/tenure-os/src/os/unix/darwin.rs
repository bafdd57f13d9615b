//! What only macOS has, or has in another form: locks of an open file, the table of processes, and the
//! names of this boot and machine. No crate wraps these that is built without Apple's own headers.
//!
//! The only unsafe code of the library on this system. It asks the system and decides nothing; an answer
//! that is shorter than what was asked for is an error.

use super::Errno;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// What the kernel says of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    /// In microseconds since 1970. No process may look at another user's.
    pub(crate) started: Option<u64>,
    /// The process has ended, and its parent has not collected it.
    pub(crate) is_zombie: bool,
    /// The process has become a program of its own. Not known of another user's process.
    pub(crate) has_executed: Option<bool>,
}

/// The kernel's `PROC_FLAG_EXEC`, which the crate `libc` does not have.
const HAS_EXECUTED: u32 = 0x4000;

/// Asks for a process, zombies included.
pub(crate) fn process(pid: u32) -> Result<Process, Errno> {
    // SAFETY: both structures are plain numbers, for which zeroes are valid, and the second argument
    // names the one that is filled in.
    let short: libc::proc_bsdshortinfo = unsafe { info(pid, libc::PROC_PIDT_SHORTBSDINFO)? };
    let full: Option<libc::proc_bsdinfo> = unsafe { info(pid, libc::PROC_PIDTBSDINFO) }.ok();
    let micros = |full: &libc::proc_bsdinfo| {
        let seconds = full.pbi_start_tvsec.saturating_mul(1_000_000);
        seconds.saturating_add(full.pbi_start_tvusec)
    };
    Ok(Process {
        parent: short.pbsi_ppid,
        started: full.as_ref().map(micros),
        is_zombie: short.pbsi_status == libc::SZOMB,
        has_executed: full.map(|full| full.pbi_flags & HAS_EXECUTED != 0),
    })
}

/// # Safety
/// `T` is the structure that `flavor` fills in, and zeroes are a value of it.
unsafe fn info<T>(pid: u32, flavor: i32) -> Result<T, Errno> {
    let pid = i32::try_from(pid).map_err(|_| Errno::SRCH)?;
    let size = i32::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    let mut filled = MaybeUninit::<T>::zeroed();
    // SAFETY: the kernel writes at most `size` bytes, which is what the buffer has. The third argument
    // asks for zombies too.
    let written = unsafe { libc::proc_pidinfo(pid, flavor, 1, filled.as_mut_ptr().cast(), size) };
    if written != size {
        return Err(last_error());
    }
    // SAFETY: filled in, and what was not is zero.
    Ok(unsafe { filled.assume_init() })
}

/// The processes that are listed: `PROC_PGRP_ONLY` and `PROC_PPID_ONLY` of the kernel's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    OfGroup(u32),
    ChildrenOf(u32),
}

/// The numbers of these processes, zombies included.
pub(crate) fn list(listed: Listed) -> Result<Vec<u32>, Errno> {
    let (kind, of) = match listed {
        Listed::OfGroup(group) => (2, group),
        Listed::ChildrenOf(parent) => (6, parent),
    };
    let mut numbers = vec![0_i32; 256];
    loop {
        let size = i32::try_from(size_of_val(numbers.as_slice())).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the address is this thread's own. An empty list and a failure are both answered by 0,
        // and only a failure changes it.
        unsafe { *libc::__error() = 0 };
        // SAFETY: the kernel writes at most `size` bytes, which is what the buffer has.
        let written = unsafe { libc::proc_listpids(kind, of, numbers.as_mut_ptr().cast(), size) };
        let failure = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        if written < 0 || (written == 0 && failure != 0) {
            return Err(last_error());
        }
        let written = usize::try_from(written).unwrap_or(0);
        // A full buffer may lack some.
        if written < size_of_val(numbers.as_slice()) {
            numbers.truncate(written / size_of::<i32>());
            let numbers = numbers.into_iter();
            return Ok(numbers.filter_map(|pid| u32::try_from(pid).ok()).collect());
        }
        numbers.resize(numbers.len() * 2, 0);
    }
}

/// How much a process may be started with (`ARG_MAX`).
const ARGUMENTS_BYTES: usize = 1 << 20;

/// What a process was started with: how many arguments as a native `int`, the path of the program, zeroes,
/// and the arguments with a zero behind each.
pub(crate) fn arguments(pid: u32) -> Result<Vec<u8>, Errno> {
    let pid = i32::try_from(pid).map_err(|_| Errno::SRCH)?;
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut block = vec![0; ARGUMENTS_BYTES];
    let mut length = block.len();
    // SAFETY: the name has three numbers, and the kernel writes at most `length` bytes and says into it
    // how many they were.
    let answer = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            3,
            block.as_mut_ptr().cast(),
            &raw mut length,
            ptr::null_mut(),
            0,
        )
    };
    if answer != 0 {
        return Err(last_error());
    }
    block.truncate(length);
    Ok(block)
}

/// A text that the kernel has under a name.
pub(crate) fn text(name: &CStr) -> Option<String> {
    let mut block = [0_u8; 128];
    let mut length = block.len();
    // SAFETY: the name ends with a zero; as above.
    let answer = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            block.as_mut_ptr().cast(),
            &raw mut length,
            ptr::null_mut(),
            0,
        )
    };
    let text = CStr::from_bytes_until_nul(block.get(..length)?).ok()?;
    (answer == 0).then(|| text.to_str().map(str::to_owned).ok())?
}

/// The number of this machine.
pub(crate) fn machine() -> Option<[u8; 16]> {
    let mut number = [0; 16];
    let patience = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    // SAFETY: 16 bytes are written, and the time lives until the call returns.
    let answer = unsafe { libc::gethostuuid(number.as_mut_ptr(), &raw const patience) };
    (answer == 0).then_some(number)
}
