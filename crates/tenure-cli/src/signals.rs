//! Signals of this process: what arrives is written into a pipe, and a sleeping system call can
//! be interrupted without a second thread.
//!
//! This is the binary's only module with `unsafe` code. A handler may do little: it writes two
//! bytes into a pipe that does not block, and where the process sleeps in the kernel for its turn
//! it arms a timer. Both are on POSIX's list of what a handler may call.
//!
//! **Why a timer in the handler.** The main thread sleeps in `fcntl(F_OFD_SETLKW)`. A signal that
//! arrives just before that call begins would be noticed only when the sleep ends. The timer goes
//! on interrupting until somebody has noticed and stopped it, so no signal and no deadline is
//! ever lost between a check and a sleep.
//!
//! `flock` sleeps here too, for the lock of a whole file: its descriptor is a number that the
//! caller typed, and the time-out is the same timer. It collects no signals; all of them keep the
//! meaning that they had when we were started.
//!
//! What to do about a signal is decided elsewhere (`supervise`).
#![allow(
    unsafe_code,
    reason = "sigaction, timer_settime and raise have no safe form, nor has a lock on a descriptor \
              of which only the number is known"
)]

#[cfg_attr(target_os = "macos", path = "signals/timer_of_macos.rs")]
mod timer;

use libc::{c_int, siginfo_t};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tenure::clock::instant;
use tenure::store::Wake;
use tenure::store::file::{ByteLock, Sleeper, poll_readable};

/// The two ends of the pipe; -1 until there is one. They are never closed.
static PIPE: AtomicI32 = AtomicI32::new(-1);
static PIPE_OUT: AtomicI32 = AtomicI32::new(-1);
/// The first signal that asked this process to end; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);
/// Whether a command runs, so that every signal is for the supervisor to decide about.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Whether the terminal asked to stop while no command ran. That is done between two steps, for a
/// process that is stopped in the middle of a change would keep the guard from everybody.
static PAUSE: AtomicBool = AtomicBool::new(false);
/// Whether the main thread sleeps, or is about to, in a call that a timer has to interrupt.
static SLEEPING: AtomicBool = AtomicBool::new(false);
/// Whether a waiter was called, because somebody asked it to stop.
static SUMMONED: AtomicBool = AtomicBool::new(false);

/// What this process was started with, beside what it leaves alone: signals that were ignored, and
/// one that was blocked.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);
static IGNORED_INTERRUPT: AtomicBool = AtomicBool::new(false);
static IGNORED_CHILD: AtomicBool = AtomicBool::new(false);
static IGNORED_ALARM: AtomicBool = AtomicBool::new(false);
static BLOCKED_ALARM: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library ignores SIGPIPE without leaving a trace of what it was.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::SeqCst);
}

/// Signals that end this process, in an orderly way.
const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Signals that are passed on to the command.
const PASSED_ON: [c_int; 4] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, libc::SIGCONT];

/// The timer's first and further beats once a signal came while sleeping.
const BEAT_FIRST: Duration = Duration::from_millis(1);
const BEAT: Duration = Duration::from_millis(10);

/// A signal as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Its number.
    pub(crate) number: c_int,
    /// It came from the kernel (a key on the terminal), not from a process.
    pub(crate) from_kernel: bool,
}

/// The collected signals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals;

extern "C" fn handler(number: c_int, info: *mut siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the location is this thread's own; a handler has to leave it as it was.
    let errno = unsafe { errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    if number == libc::SIGTSTP && !RUNNING.load(Ordering::SeqCst) {
        PAUSE.store(true, Ordering::SeqCst);
        if SLEEPING.load(Ordering::SeqCst) {
            set_timer(BEAT_FIRST);
        }
    } else if number == libc::SIGIO {
        SUMMONED.store(true, Ordering::SeqCst);
        if SLEEPING.load(Ordering::SeqCst) {
            set_timer(BEAT_FIRST);
        }
    } else if number != libc::SIGALRM {
        // SAFETY: with SA_SIGINFO the kernel passes a valid pointer. That of macOS does not tell a key from
        // a process.
        let from_kernel =
            cfg!(not(target_os = "macos")) && !info.is_null() && unsafe { (*info).si_code } > 0;
        let bytes = [u8::try_from(number).unwrap_or(0), u8::from(from_kernel)];
        if ENDING.contains(&number) {
            // The first one is the one that is told.
            let _ = STOP.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        }
        // SAFETY: write is async-signal-safe; a full or closed pipe only returns an error, and
        // the bytes live until it returns.
        unsafe {
            libc::write(
                PIPE.load(Ordering::SeqCst),
                bytes.as_ptr().cast(),
                bytes.len(),
            );
        }
        if ENDING.contains(&number) && SLEEPING.load(Ordering::SeqCst) {
            set_timer(BEAT_FIRST);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno_location;
#[cfg(target_os = "macos")]
use libc::__error as errno_location;

/// Whether the signal was ignored until now.
fn install(number: c_int, flags: c_int) -> bool {
    // SAFETY: a zeroed sigaction is valid; the handler has the signature that SA_SIGINFO asks
    // for and does only what a handler may.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(number, &raw const action, &raw mut before) == 0
            && before.sa_sigaction == libc::SIG_IGN
    }
}

fn set_default(number: c_int) {
    // SAFETY: a zeroed sigaction is the default disposition.
    unsafe {
        let action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(number, &raw const action, ptr::null_mut());
    }
}

fn ignore(number: c_int) {
    // SAFETY: SIG_IGN is a disposition like any other.
    unsafe {
        libc::signal(number, libc::SIG_IGN);
    }
}

fn install_all(numbers: &[c_int]) {
    for number in numbers {
        if !is_ignored(*number) {
            install(*number, 0);
        } else if *number == libc::SIGINT {
            IGNORED_INTERRUPT.store(true, Ordering::SeqCst);
        }
    }
}

/// Whether a signal was being ignored when this process started (by nohup, or by a shell that
/// runs us in the background). Such a signal stays ignored, for the command too.
fn is_ignored(number: c_int) -> bool {
    // SAFETY: reads the present disposition into a zeroed structure.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(number, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The two ends of a pipe, of which neither blocks or is inherited.
#[cfg(not(target_os = "macos"))]
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
    Ok(rustix::pipe::pipe_with(flags)?)
}

/// The same where a pipe is made first and told afterwards. No command is started meanwhile.
#[cfg(target_os = "macos")]
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe()?;
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok((read, write))
}

impl Signals {
    /// Starts to collect the signals that end this process in an orderly way. All others keep
    /// their meaning: whoever waits can still be stopped by Ctrl-Z.
    ///
    /// # Errors
    /// - The system has no more descriptors.
    pub(crate) fn collect() -> io::Result<Self> {
        let (read, write) = pipe()?;
        // The handlers live as long as the process does, and so does the pipe.
        PIPE_OUT.store(read.into_raw_fd(), Ordering::SeqCst);
        PIPE.store(write.into_raw_fd(), Ordering::SeqCst);
        install_all(&ENDING);
        install_all(&[libc::SIGTSTP]);
        // Whoever started us may ignore SIGCHLD; then the kernel would collect our command and
        // its exit code with it.
        IGNORED_CHILD.store(install(libc::SIGCHLD, 0), Ordering::SeqCst);
        Ok(Self)
    }

    /// What asks a command to end where nobody says otherwise: SIGINT, or SIGTERM where whoever
    /// started us ignored that one. A shell does so to what its scripts run in the background, and a
    /// command that has inherited it hears nothing.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that somebody has looked"
    )]
    pub(crate) fn usual_request(self) -> c_int {
        if IGNORED_INTERRUPT.load(Ordering::SeqCst) {
            libc::SIGTERM
        } else {
            libc::SIGINT
        }
    }

    /// Collects also what a command is to be told. Called once there is one. A command in our own
    /// group is stopped by the terminal together with us, so there the stop keeps its meaning.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that the pipe is there"
    )]
    pub(crate) fn pass_on(self, own_group: bool) {
        install_all(&PASSED_ON);
        RUNNING.store(true, Ordering::SeqCst);
        if !own_group && !is_ignored(libc::SIGTSTP) {
            set_default(libc::SIGTSTP);
        }
        // A stop that came after the last look for one and before this line: the command has to
        // hear of it, and in a group that we share it has heard already.
        if own_group && PAUSE.swap(false, Ordering::SeqCst) {
            let stop = [u8::try_from(libc::SIGTSTP).unwrap_or(0), 0];
            // SAFETY: the bytes live until the call returns; a full pipe only returns an error.
            unsafe {
                libc::write(
                    PIPE.load(Ordering::SeqCst),
                    stop.as_ptr().cast(),
                    stop.len(),
                );
            }
        } else {
            pause_if_asked();
        }
    }

    /// Gives every signal the meaning back that it had when this process was started, for a
    /// command that takes its place.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that they were collected"
    )]
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back(self, command: &mut Command) {
        // What was ignored was left alone. So whatever has a handler had none.
        for number in ENDING.into_iter().chain([libc::SIGTSTP]) {
            if !is_ignored(number) {
                set_default(number);
            }
        }
        for (number, ignored) in [
            (libc::SIGCHLD, &IGNORED_CHILD),
            (libc::SIGALRM, &IGNORED_ALARM),
        ] {
            if ignored.load(Ordering::SeqCst) {
                ignore(number);
            } else if !is_ignored(number) {
                set_default(number);
            }
        }
        if BLOCKED_ALARM.load(Ordering::SeqCst) {
            // SAFETY: the set is valid for the calls.
            unsafe {
                let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGALRM);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            }
        }
        if IGNORED_PIPE.load(Ordering::SeqCst) {
            // SAFETY: runs in this process right before it becomes the command, after the standard
            // library has given SIGPIPE its default; signal(2) may be called there.
            unsafe {
                command.pre_exec(|| {
                    ignore(libc::SIGPIPE);
                    Ok(())
                });
            }
        }
    }

    /// The next signal, if one has arrived.
    pub(crate) fn next(self) -> Option<Arrived> {
        let mut bytes = [0; 2];
        match rustix::io::read(self.descriptor(), &mut bytes) {
            Ok(2) => {
                let [number, from_kernel] = bytes;
                Some(Arrived {
                    number: c_int::from(number),
                    from_kernel: from_kernel == 1,
                })
            }
            _ => None,
        }
    }

    /// The descriptor to poll.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that the pipe is there"
    )]
    pub(crate) fn descriptor(self) -> BorrowedFd<'static> {
        // SAFETY: made by `collect`, the only way to a value of this type, and never closed.
        unsafe { BorrowedFd::borrow_raw(PIPE_OUT.load(Ordering::SeqCst)) }
    }
}

/// The first signal that asked this process to end.
pub(crate) fn stop_asked() -> Option<c_int> {
    Some(STOP.load(Ordering::SeqCst)).filter(|number| *number != 0)
}

/// Stops this process if the terminal asked for it while no command ran.
pub(crate) fn pause_if_asked() {
    if PAUSE.swap(false, Ordering::SeqCst) {
        stop_self(libc::SIGTSTP);
    }
}

/// Stops this process as the command was stopped, and returns when it is continued.
pub(crate) fn stop_self(number: c_int) {
    // SAFETY: the disposition is put back right after; raise affects this thread only.
    unsafe {
        let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(number, &raw const default, &raw mut before);
        libc::raise(number);
        libc::sigaction(number, &raw const before, ptr::null_mut());
    }
}

/// Ends this process by a signal, without leaving a core file of ours beside the command's own.
pub(crate) fn die_by(number: c_int) {
    leave_no_core();
    // SAFETY: plain system calls on this process.
    unsafe {
        let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(number, &raw const default, ptr::null_mut());
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::raise(number);
    }
}

#[cfg(not(target_os = "macos"))]
fn leave_no_core() {
    // SAFETY: a plain system call on this process.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
}

#[cfg(target_os = "macos")]
fn leave_no_core() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
}

/// Runs `action` with SIGTTOU blocked, so that a change of the terminal's foreground group from
/// the background is allowed and does not stop us. Nothing is left for a command to inherit.
pub(crate) fn without_ttou<T>(action: impl FnOnce() -> T) -> T {
    blocking(&[libc::SIGTTOU], action)
}

/// Runs `action` without being stopped by the terminal: whoever is stopped in the middle of a
/// change keeps the guard from everybody else. What came meanwhile stops us afterwards.
pub(crate) fn unstopped<T>(action: impl FnOnce() -> T) -> T {
    blocking(&[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU], action)
}

fn blocking<T>(numbers: &[c_int], action: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are valid for the calls.
    let before = unsafe {
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        let mut before: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        before
    };
    let result = action();
    // SAFETY: the mask is put back as it was.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
    result
}

/// Makes the timer that interrupts a sleep, once.
fn prepare_timer() -> io::Result<()> {
    if timer::is_made() {
        return Ok(());
    }
    IGNORED_ALARM.store(install(libc::SIGALRM, 0), Ordering::SeqCst);
    // SAFETY: the sets are valid for the calls.
    unsafe {
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        let mut before: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, &raw mut before);
        let blocked = libc::sigismember(&raw const before, libc::SIGALRM) == 1;
        BLOCKED_ALARM.store(blocked, Ordering::SeqCst);
    }
    timer::make()
}

/// Lets the timer beat after `first`, and again and again until it is stopped by a zero.
fn set_timer(first: Duration) {
    let interval = if first.is_zero() {
        Duration::ZERO
    } else {
        BEAT
    };
    timer::set(first, interval);
}

/// Sleeps in the kernel on the main thread; a timer signal ends the sleep at its deadline, and
/// any signal that asks us to end does so at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalSleeper(pub(crate) Signals);

/// Sleeps for a byte and keeps it.
fn sleep(
    file: BorrowedFd<'_>,
    lock: ByteLock,
    until: Option<Instant>,
    interruptible: bool,
) -> io::Result<Wake> {
    prepare_timer()?;
    SLEEPING.store(true, Ordering::SeqCst);
    if let Some(until) = until {
        let rest = until.saturating_duration_since(instant());
        set_timer(rest.max(Duration::from_micros(1)));
    }
    let wake = loop {
        pause_if_asked();
        if interruptible && stop_asked().is_some() {
            break Ok(Wake::Interrupted);
        }
        if interruptible && SUMMONED.swap(false, Ordering::SeqCst) {
            break Ok(Wake::Ready);
        }
        if until.is_some_and(|until| instant() >= until) {
            break Ok(Wake::Expired);
        }
        match lock.take(file) {
            Ok(()) => break Ok(Wake::Ready),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    SLEEPING.store(false, Ordering::SeqCst);
    set_timer(Duration::ZERO);
    wake
}

/// Has a signal sent once a summons can be read. True if it can be already.
fn listen(summons: BorrowedFd<'_>) -> io::Result<bool> {
    install(libc::SIGIO, 0);
    let fd = summons.as_raw_fd();
    // SAFETY: plain calls on a descriptor that is open for as long as it is borrowed.
    let asked = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) == 0
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
    };
    if !asked {
        return Err(io::Error::last_os_error());
    }
    // What came before the signal was asked for is not signalled.
    let now = Some(instant());
    Ok(poll_readable(&[summons], Duration::ZERO, now)? == Wake::Ready)
}

impl Sleeper for SignalSleeper {
    fn lock(&self, file: BorrowedFd<'_>, lock: ByteLock, patience: Duration) -> io::Result<Wake> {
        sleep(file, lock, instant().checked_add(patience), false)
    }

    fn pass(
        &self,
        file: BorrowedFd<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        summons: Option<BorrowedFd<'_>>,
    ) -> io::Result<Wake> {
        if let Some(summons) = summons
            && listen(summons)?
        {
            return Ok(Wake::Ready);
        }
        let wake = sleep(file, lock, until, true)?;
        if wake == Wake::Ready {
            // After a summons there is nothing to give back, which is no error.
            lock.give_back(file)?;
        }
        Ok(wake)
    }

    fn poll(
        &self,
        fds: &[BorrowedFd<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        let mut all = fds.to_vec();
        all.push(self.0.descriptor());
        let wake = poll_readable(&all, nap, until)?;
        pause_if_asked();
        if stop_asked().is_some() {
            return Ok(Wake::Interrupted);
        }
        // What else arrived is for a command that does not run yet.
        while self.0.next().is_some() {}
        Ok(wake)
    }
}

/// What is done to the lock of a whole file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileLock {
    /// `LOCK_SH`, `LOCK_EX` or `LOCK_UN`.
    pub(crate) operation: c_int,
    /// It is a lock of fcntl(2) on the open file, in place of one of flock(2).
    pub(crate) by_fcntl: bool,
}

impl FileLock {
    /// Does it, and sleeps for it if it has to and may.
    ///
    /// # Errors
    /// - `WouldBlock` if it may not.
    /// - `Interrupted` when the timer has beaten.
    /// - What the kernel says about the descriptor.
    fn call(self, descriptor: RawFd, sleep: bool) -> io::Result<()> {
        let result = if self.by_fcntl {
            let kind = match self.operation {
                libc::LOCK_SH => libc::F_RDLCK,
                libc::LOCK_UN => libc::F_UNLCK,
                _ => libc::F_WRLCK,
            };
            let command = if sleep {
                libc::F_OFD_SETLKW
            } else {
                libc::F_OFD_SETLK
            };
            #[allow(clippy::useless_conversion, reason = "they are of this type on macOS")]
            let whole = libc::flock {
                l_type: i16::try_from(kind).unwrap_or(0),
                l_whence: 0, // SEEK_SET
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            // SAFETY: takes numbers and a structure that lives until it returns; a number that is
            // no descriptor is answered with an error.
            unsafe { libc::fcntl(descriptor, command, &raw const whole) }
        } else {
            let flag = if sleep { 0 } else { libc::LOCK_NB };
            // SAFETY: takes numbers only; one that is no descriptor is answered with an error.
            unsafe { libc::flock(descriptor, self.operation | flag) }
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(match error.raw_os_error() {
            // The kernel may answer fcntl(2) with either.
            Some(libc::EACCES) if self.by_fcntl => io::ErrorKind::WouldBlock.into(),
            _ => error,
        })
    }

    /// Does it at once or not at all.
    ///
    /// # Errors
    /// - `WouldBlock` if somebody else's lock is in the way.
    /// - What the kernel says about the descriptor.
    pub(crate) fn at_once(self, descriptor: RawFd) -> io::Result<()> {
        self.call(descriptor, false)
    }

    /// Does it, however long that takes.
    ///
    /// # Errors
    /// - What the kernel says about the descriptor.
    pub(crate) fn patiently(self, descriptor: RawFd) -> io::Result<()> {
        loop {
            match self.call(descriptor, true) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Does it, and gives up once `patience` is over.
    ///
    /// # Errors
    /// - `TimedOut` if somebody else's lock was in the way for so long.
    /// - What the kernel says about the timer.
    /// - What the kernel says about the descriptor.
    pub(crate) fn within(self, descriptor: RawFd, patience: Duration) -> io::Result<()> {
        prepare_timer()?;
        let until = instant().checked_add(patience);
        set_timer(patience);
        let result = loop {
            match self.call(descriptor, true) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if until.is_some_and(|until| instant() >= until) {
                        break Err(io::ErrorKind::TimedOut.into());
                    }
                }
                result => break result,
            }
        };
        set_timer(Duration::ZERO);
        result
    }
}

#[cfg(not(target_os = "macos"))]
fn last_signal() -> c_int {
    libc::SIGRTMAX()
}

/// There are none for real-time purposes.
#[cfg(target_os = "macos")]
fn last_signal() -> c_int {
    libc::SIGUSR2
}

/// Lets a command begin with the signals as we were given them: those that are blocked, and
/// SIGPIPE, which would be set back. Only SIGCHLD gets its default meaning, for us and for the
/// command: who ignores it never learns how a child ended.
pub(crate) fn give_as_received(command: &mut Command) {
    set_default(libc::SIGCHLD);
    let ignores_pipe = IGNORED_PIPE.load(Ordering::SeqCst);
    // SAFETY: an empty set is made, and then filled with the present mask.
    let (blocked, none) = unsafe {
        let mut blocked: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut blocked);
        libc::sigprocmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked);
        let none = (1..=last_signal()).all(|n| libc::sigismember(&raw const blocked, n) != 1);
        (blocked, none)
    };
    if none && !ignores_pipe {
        return;
    }
    // SAFETY: between fork and exec only calls are made that a signal handler may make as well.
    unsafe {
        command.pre_exec(move || {
            if ignores_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const blocked, ptr::null_mut());
            Ok(())
        });
    }
}
