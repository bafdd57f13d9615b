//! What stands on Windows in the place of signals: the console's events, and the job that a command and
//! all that it starts belong to. The binary's only module with `unsafe` code on this system.
//!
//! The console calls from a thread of its own, which notes what came and sets an event that the main
//! thread sleeps on. Ctrl-C counts as SIGINT, Ctrl-Break as SIGTERM, a closed window and the end of the
//! session as SIGHUP. The numbers are those of Unix, because exit codes and records have them.
//!
//! `supervise` decides what to do about an event.
#![allow(
    unsafe_code,
    reason = "console handlers, jobs and suspended processes have no safe form"
)]

#[path = "writing_of_windows.rs"]
mod writing;

use std::io;
use std::os::windows::io::{
    AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle, RawHandle,
};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tenure_os::clock::instant;
use tenure_store::Wake;
use tenure_store::file::{ByteLock, Sleeper, ThreadSleeper, poll_readable};
use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation,
    QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, OpenThread, ResetEvent, ResumeThread, SetEvent, THREAD_SUSPEND_RESUME,
};
pub(crate) use writing::{Stream, Unwritten, Why, write_unless_stopped, write_within};

/// The numbers of Unix. Some of them can be neither sent nor received here, but exit codes and the
/// decisions of `supervise` need their names.
pub(crate) mod numbers {
    pub(crate) const SIGHUP: i32 = 1;
    pub(crate) const SIGINT: i32 = 2;
    pub(crate) const SIGQUIT: i32 = 3;
    pub(crate) const SIGKILL: i32 = 9;
    pub(crate) const SIGTERM: i32 = 15;
    pub(crate) const SIGCONT: i32 = 18;
    pub(crate) const SIGTSTP: i32 = 20;
}

/// The first event that asked this process to end; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);
/// How often each kind came and was not fetched yet: Ctrl-C, Ctrl-Break, the end of window or session.
static COUNTS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
/// Set while something was not fetched.
static CAME: OnceLock<OwnedHandle> = OnceLock::new();

/// What each kind counts as.
const KINDS: [i32; 3] = [numbers::SIGINT, numbers::SIGTERM, numbers::SIGHUP];

/// How long the system is kept from ending a process whose window was closed. It waits no longer itself.
const CLOSING: Duration = Duration::from_secs(5);

/// How long a sleep on another process's byte lasts before it looks whether an event came. Nothing else
/// can end such a sleep here.
const LOOK: Duration = Duration::from_millis(50);

unsafe extern "system" fn came(kind: u32) -> i32 {
    let (index, is_closing) = match kind {
        CTRL_C_EVENT => (0, false),
        CTRL_BREAK_EVENT => (1, false),
        _ => (2, true),
    };
    if let (Some(count), Some(number)) = (COUNTS.get(index), KINDS.get(index)) {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = STOP.compare_exchange(0, *number, Ordering::SeqCst, Ordering::SeqCst);
    }
    if let Some(came) = CAME.get() {
        // SAFETY: what the static has is open for good.
        unsafe { SetEvent(came.as_raw_handle()) };
    }
    if is_closing {
        // With the return of this call the process is ended.
        std::thread::sleep(CLOSING);
    }
    1
}

fn done(answer: i32) -> io::Result<()> {
    if answer == 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Takes over a handle that a call has given.
///
/// # Safety
/// `handle` is open and belongs to no other value, or is one of the two values that mean *none*.
unsafe fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// An event that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// What it counts as.
    pub(crate) number: i32,
}

/// The events of this process, which are collected from now on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals;

impl Signals {
    /// Collects them.
    pub(crate) fn collect() -> io::Result<Self> {
        // SAFETY: null means no name and the usual rights; the handle is new and belongs to no other
        // value.
        let fresh = unsafe { owned(CreateEventW(ptr::null(), 1, 0, ptr::null())) }?;
        let _ = CAME.set(fresh);
        // SAFETY: the handler is a function of this program, and is there to its end.
        done(unsafe { SetConsoleCtrlHandler(Some(came), 1) })?;
        Ok(Self)
    }

    /// What asks a command to end by default.
    #[allow(clippy::unused_self, reason = "one surface with the signals of Unix")]
    pub(crate) fn usual_request(self) -> i32 {
        numbers::SIGINT
    }

    /// The next one that has arrived.
    #[allow(clippy::unused_self, reason = "one surface with the signals of Unix")]
    pub(crate) fn next(self) -> Option<Arrival> {
        let came = CAME.get()?;
        // SAFETY: what the static has is open for good. Reset before the look, so that a later event
        // sets it again.
        unsafe { ResetEvent(came.as_raw_handle()) };
        let mut found = None;
        let mut more = false;
        for (count, number) in COUNTS.iter().zip(KINDS) {
            let taken = |left: u32| left.checked_sub(1);
            if found.is_none() {
                let before = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken);
                found = before.ok().map(|_| number);
            }
            more |= count.load(Ordering::SeqCst) > 0;
        }
        if more {
            // SAFETY: as above.
            unsafe { SetEvent(came.as_raw_handle()) };
        }
        found.map(|number| Arrival { number })
    }

    /// What to poll.
    #[allow(clippy::unused_self, reason = "one surface with the signals of Unix")]
    pub(crate) fn descriptors(self) -> Vec<BorrowedHandle<'static>> {
        CAME.get().map(AsHandle::as_handle).into_iter().collect()
    }
}

/// What asked this process to end, if anything did.
pub(crate) fn stop_asked() -> Option<i32> {
    Some(STOP.load(Ordering::SeqCst)).filter(|number| *number != 0)
}

/// Nothing stops a process here and lets it go on.
pub(crate) fn pause_if_asked() {}

/// No process ends by a signal here; its exit code says all.
pub(crate) fn die_by(_: i32) {}

/// Nothing stops a process in the middle of a change.
pub(crate) fn unstopped<T>(action: impl FnOnce() -> T) -> T {
    action()
}

/// Sleeps as the library does, and ends the sleep when this process is asked to end. A sleep on another
/// process's byte ends within a twentieth of a second, all others at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalSleeper(pub(crate) Signals);

impl Sleeper for SignalSleeper {
    fn lock(
        &self,
        file: BorrowedHandle<'_>,
        lock: ByteLock,
        patience: Duration,
    ) -> io::Result<Wake> {
        ThreadSleeper.lock(file, lock, patience)
    }

    fn pass(
        &self,
        file: BorrowedHandle<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        wake_up: Option<BorrowedHandle<'_>>,
    ) -> io::Result<Wake> {
        loop {
            if stop_asked().is_some() {
                return Ok(Wake::Interrupted);
            }
            let look = instant() + LOOK;
            let first = until.map_or(look, |until| until.min(look));
            let wake = ThreadSleeper.pass(file, lock, Some(first), wake_up)?;
            if wake != Wake::Expired || until.is_some_and(|until| until <= instant()) {
                return Ok(wake);
            }
        }
    }

    fn poll(
        &self,
        fds: &[BorrowedHandle<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        if stop_asked().is_some() {
            return Ok(Wake::Interrupted);
        }
        let mut all = fds.to_vec();
        all.extend(self.0.descriptors());
        let wake = poll_readable(&all, nap, until)?;
        Ok(if stop_asked().is_some() {
            Wake::Interrupted
        } else {
            wake
        })
    }
}

/// A command's job: the command and all that it starts. Closing the last handle on it, as the end of this
/// process does whatever the reason, ends everything that still runs in it.
#[derive(Debug)]
pub(crate) struct Job(OwnedHandle);

impl Job {
    /// An empty one.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: null means no name and the usual rights; the handle is new and belongs to no other
        // value.
        let job = Self(unsafe { owned(CreateJobObjectW(ptr::null(), ptr::null())) }?);
        job.limit(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)?;
        Ok(job)
    }

    fn limit(&self, flags: u32) -> io::Result<()> {
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = flags;
        let size = u32::try_from(size_of_val(&limits)).unwrap_or(0);
        // SAFETY: the job is open, and `limits` is a structure of the kind and size that are named.
        done(unsafe {
            SetInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw const limits).cast(),
                size,
            )
        })
    }

    /// Lets what is left in it go on after this process.
    pub(crate) fn let_go(&self) -> io::Result<()> {
        self.limit(0)
    }

    /// Puts a process into it.
    pub(crate) fn take(&self, process: RawHandle) -> io::Result<()> {
        // SAFETY: both are open: the job is ours, and the process a child that was not collected yet.
        done(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process) })
    }

    /// How many processes run in it.
    pub(crate) fn running(&self) -> io::Result<u32> {
        let mut found = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = u32::try_from(size_of_val(&found)).unwrap_or(0);
        // SAFETY: the job is open, and `found` is a structure of the kind and size that are named.
        done(unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                (&raw mut found).cast(),
                size,
                ptr::null_mut(),
            )
        })?;
        Ok(found.ActiveProcesses)
    }

    /// Ends everything in it.
    pub(crate) fn end(&self, code: u32) -> io::Result<()> {
        // SAFETY: the job is open.
        done(unsafe { TerminateJobObject(self.0.as_raw_handle(), code) })
    }
}

/// Lets a process go on that was started suspended: it has one thread.
pub(crate) fn resume(process: u32) -> io::Result<()> {
    // SAFETY: takes numbers; the handle is new and belongs to no other value.
    let snapshot = unsafe { owned(CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0)) }?;
    let mut entry = THREADENTRY32 {
        dwSize: u32::try_from(size_of::<THREADENTRY32>()).unwrap_or(0),
        ..THREADENTRY32::default()
    };
    // SAFETY: the snapshot is open, and `entry` says its own size.
    let mut more = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    while more {
        if entry.th32OwnerProcessID == process {
            // SAFETY: takes numbers; the handle is new and belongs to no other value. The process is our
            // child and suspended, so its number and its thread's number belong to them alone.
            let thread =
                unsafe { owned(OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID)) }?;
            // SAFETY: the thread is open.
            let before = unsafe { ResumeThread(thread.as_raw_handle()) };
            return if before == u32::MAX {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            };
        }
        // SAFETY: as above.
        more = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Asks a command that was started as a group of its own to end. It sends Ctrl-Break, the only key that
/// can be sent to one group alone.
pub(crate) fn ask(group: u32) -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, group) })
}
