//! Signals of this process: a handler writes what arrives into a pipe, and a sleeping system call can
//! be interrupted without a second thread.
//!
//! No other module of the binary has `unsafe` code. A handler may do little. It writes two bytes into a
//! pipe that does not block. Where the process sleeps in the kernel for its turn, it also arms a timer.
//! Both are on POSIX's list of what a handler may call.
//!
//! **Why a timer in the handler.** The main thread sleeps in `fcntl(F_OFD_SETLKW)`. A signal that
//! arrives just before that call begins would be noticed only when the sleep ends. The timer goes on
//! interrupting until the main thread has noticed and stopped it. So no signal and no deadline is ever
//! lost between a check and a sleep.
//!
//! **Blocked signals.** A caller may start us with any signal blocked. We would then not hear its
//! signals, nor the end of the command or the timer's beat. So the signals that we need are let through
//! from the start. Each program that we start gets back the mask with which we were started.
//!
//! `flock` sleeps here too, for the lock of a whole file. Its descriptor is a number that the caller
//! typed, and the time-out is the same timer. It collects no signals; all of them keep the meaning that
//! they had when we were started.
//!
//! `supervise` decides what to do about a signal.
#![allow(
    unsafe_code,
    reason = "sigaction, timer_settime and raise have no safe form, nor has a lock on a descriptor \
              of which only the number is known"
)]

mod gate;
mod leader;
#[cfg_attr(target_os = "macos", path = "signals/timer_of_macos.rs")]
mod timer;
mod writing;

pub(crate) use gate::spawn_known;
pub(crate) use leader::Leader;

use libc::{c_int, siginfo_t};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure_os::clock::instant;
use tenure_store::Wake;
use tenure_store::file::{ByteLock, Sleeper, poll_readable};
pub(crate) use writing::{Stream, Unwritten, Why, write_unless_stopped, write_within};

/// The two ends of the pipe; -1 until there is one. They are never closed.
static PIPE: AtomicI32 = AtomicI32::new(-1);
static PIPE_OUT: AtomicI32 = AtomicI32::new(-1);
/// The first signal that asked this process to end; 0 for none.
static STOP: AtomicI32 = AtomicI32::new(0);
/// Whether a command runs, so that every signal is for the supervisor to decide about.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Whether the terminal asked to stop while no command ran. We stop between two steps: a process that
/// is stopped in the middle of a change would keep the guard from every other caller.
static PAUSE: AtomicBool = AtomicBool::new(false);
/// Whether the main thread sleeps, or is about to, in a call that a timer has to interrupt: for a lock, or
/// for a reader of its answer.
static SLEEPING: AtomicBool = AtomicBool::new(false);
/// Whether a waiter was woken, because another caller asked it to stop.
static WOKEN: AtomicBool = AtomicBool::new(false);

/// What this process was started with, beside what it leaves alone: signals that were ignored, and
/// those that were blocked.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);
static IGNORED_INTERRUPT: AtomicBool = AtomicBool::new(false);
static IGNORED_CHILD: AtomicBool = AtomicBool::new(false);
static IGNORED_ALARM: AtomicBool = AtomicBool::new(false);
static IGNORED_IO: AtomicBool = AtomicBool::new(false);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// The blocked signals that are let through by now.
static LET_THROUGH: AtomicU64 = AtomicU64::new(0);

/// Runs before the standard library ignores SIGPIPE without leaving a trace of what it was.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::SeqCst);
    // A limit on the size of files must not end us in the middle of a change, or while a command runs:
    // with a handler the write returns EFBIG. The signal is not ignored instead, because a program that
    // we start gets the default back by itself after a handler.
    if install(libc::SIGXFSZ, 0) {
        ignore(libc::SIGXFSZ);
    }
}

/// Signals that end this process, in an orderly way.
const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Signals that are passed on to the command, with those for real time ([`passed_on`]). Without a handler most of them end
/// this process, and the command would go on without it. Left out is what the kernel sends for a fault of this process itself,
/// where a handler would be called without end.
const PASSED_ON: &[c_int] = &[
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGURG,
    libc::SIGIO,
    #[cfg(target_os = "linux")]
    libc::SIGPWR,
    #[cfg(target_os = "linux")]
    libc::SIGSTKFLT,
];

/// All signals that are passed on.
fn passed_on() -> impl Iterator<Item = c_int> + Clone {
    #[cfg(target_os = "linux")]
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    #[cfg(not(target_os = "linux"))]
    let real_time = 1..=0;
    PASSED_ON.iter().copied().chain(real_time)
}

/// Signals that are let through from the start, whatever the caller has blocked. They end us, stop us
/// from a terminal, report the end of a child, are the timer's beat, or call a waiter that is asked to
/// stop.
const HEARD: Mask = Mask::of(&ENDING).and(Mask::of(&[
    libc::SIGTSTP,
    libc::SIGCHLD,
    libc::SIGALRM,
    libc::SIGIO,
]));

/// The timer's first and further beats once a signal came while sleeping.
const BEAT_FIRST: Duration = Duration::from_millis(1);
const BEAT: Duration = Duration::from_millis(10);

/// A signal as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The signal's number.
    pub(crate) number: c_int,
    /// Whether the signal came from the kernel (a key on the terminal), not from a process.
    pub(crate) from_kernel: bool,
    /// The process that sent it, by its number: 0 for the kernel, and for a process of another PID namespace.
    pub(crate) sender: u32,
}

/// The collected signals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals;

extern "C" fn handler(number: c_int, info: *mut siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the location is this thread's own; a handler has to leave it as it was.
    let errno = unsafe { errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    let is_running = RUNNING.load(Ordering::SeqCst);
    // SAFETY: with SA_SIGINFO the kernel passes a valid pointer.
    let code = if info.is_null() {
        0
    } else {
        unsafe { (*info).si_code }
    };
    if number == libc::SIGTSTP && !is_running {
        PAUSE.store(true, Ordering::SeqCst);
        beat_if_asleep();
    } else if number == libc::SIGIO && (!is_running || code > 0) {
        // The kernel's own is the call of a waiter, which may come late.
        WOKEN.store(true, Ordering::SeqCst);
        beat_if_asleep();
    } else if number == libc::SIGALRM
        && (!is_running || timer::is_beat(code) || SLEEPING.load(Ordering::SeqCst))
    {
        if !timer::is_made() {
            beat_if_asleep();
        }
    } else if number != libc::SIGXFSZ {
        // The code of macOS does not tell a key from a process.
        let from_kernel = cfg!(not(target_os = "macos")) && code > 0;
        let is_sent = !from_kernel && !info.is_null();
        // SAFETY: as above; the kernel fills in the sender of a signal that a process sent.
        let sender = if is_sent {
            unsafe { (*info).si_pid() }
        } else {
            0
        };
        let [a, b, c, d] = sender.unsigned_abs().to_ne_bytes();
        let number_of = u8::try_from(number).unwrap_or(0);
        let bytes = [number_of, u8::from(from_kernel), a, b, c, d];
        if ENDING.contains(&number) {
            // The first signal is the one that is reported.
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
        if ENDING.contains(&number) {
            beat_if_asleep();
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Interrupts what the main thread sleeps in, or is about to: again and again until it has noticed.
///
/// A call that never waited for a lock has no timer, and makes none just to write its answer. There an
/// alarm does it, which a handler may set as well; each one sets the next.
fn beat_if_asleep() {
    if !SLEEPING.load(Ordering::SeqCst) {
        return;
    }
    if timer::is_made() {
        set_timer(BEAT_FIRST);
    } else {
        install(libc::SIGALRM, 0);
        // SAFETY: alarm(2) is async-signal-safe and takes a number.
        unsafe {
            libc::alarm(1);
        }
    }
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

/// Ignores all that asks a process to end or to stop, for the rest of its life.
pub(crate) fn ignore_requests() {
    for number in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGPIPE,
    ] {
        ignore(number);
    }
}

/// Installs handlers, but leaves alone the signals that were ignored. Called with all signals blocked,
/// so that none of these arrives between the two steps: the kernel forgets a signal that is ignored
/// again.
fn install_all(numbers: impl IntoIterator<Item = c_int>) {
    for number in numbers {
        if install(number, 0) {
            ignore(number);
            if number == libc::SIGINT {
                IGNORED_INTERRUPT.store(true, Ordering::SeqCst);
            }
        }
    }
}

/// A set of signals; signal 1 is the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mask(u64);

impl Mask {
    const ALL: Self = Self(u64::MAX);

    const fn of(numbers: &[c_int]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < numbers.len() {
            bits |= 1 << (numbers[index] - 1);
            index += 1;
        }
        Self(bits)
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn in_common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Changes which signals are blocked in this thread, as sigprocmask(2) does, and returns those that
    /// were.
    fn apply(self, how: c_int) -> Self {
        let numbers = || 1..=last_signal();
        // SAFETY: both sets are valid for the calls. Numbers that the C library keeps for itself are left
        // out by it.
        unsafe {
            let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            let mut before: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            libc::sigemptyset(&raw mut set);
            libc::sigemptyset(&raw mut before);
            for number in numbers().filter(|number| self.0 >> (number - 1) & 1 == 1) {
                libc::sigaddset(&raw mut set, number);
            }
            libc::sigprocmask(how, &raw const set, &raw mut before);
            let blocked = numbers().filter(|n| libc::sigismember(&raw const before, *n) == 1);
            Self(blocked.fold(0, |bits, number| bits | 1 << (number - 1)))
        }
    }
}

/// What was blocked when we were started.
fn received() -> Mask {
    Mask(BLOCKED.load(Ordering::SeqCst))
}

/// Blocks all signals for a moment and installs handlers in it. Then `heard` is let through, and what
/// else the caller had blocked stays blocked.
fn with_all_blocked(before: Option<Mask>, heard: Mask, install: impl FnOnce()) {
    let found = Mask::ALL.apply(libc::SIG_BLOCK);
    let received = before.unwrap_or(found);
    BLOCKED.store(received.0, Ordering::SeqCst);
    install();
    LET_THROUGH.store(received.in_common(heard).0, Ordering::SeqCst);
    received.without(heard).apply(libc::SIG_SETMASK);
}

/// Runs `action`, which starts a program, with those signals blocked that were blocked when we were started:
/// a program inherits them. What arrives meanwhile waits and is heard afterwards.
pub(crate) fn as_received<T>(action: impl FnOnce() -> T) -> T {
    if Mask(LET_THROUGH.load(Ordering::SeqCst)).is_empty() {
        return action();
    }
    let ours = received().apply(libc::SIG_SETMASK);
    let result = action();
    ours.apply(libc::SIG_SETMASK);
    result
}

/// Runs `action`, which starts a thread, with all signals blocked. The thread inherits that, so every
/// signal interrupts the thread that started it.
pub(crate) fn for_a_thread<T>(action: impl FnOnce() -> T) -> T {
    let ours = Mask::ALL.apply(libc::SIG_BLOCK);
    let result = action();
    ours.apply(libc::SIG_SETMASK);
    result
}

/// Blocks again what was let through, for good.
fn block_as_received() {
    let let_through = Mask(LET_THROUGH.swap(0, Ordering::SeqCst));
    if !let_through.is_empty() {
        let_through.apply(libc::SIG_BLOCK);
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

/// The two ends of a pipe; neither blocks, and no program inherits them.
#[cfg(not(target_os = "macos"))]
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
    Ok(rustix::pipe::pipe_with(flags)?)
}

/// A pipe whose flags are set after it was made. No command is started meanwhile.
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
    /// their meaning: a waiter can still be stopped by Ctrl-Z.
    ///
    /// # Errors
    /// - The system has no more descriptors.
    pub(crate) fn collect() -> io::Result<Self> {
        let (read, write) = pipe()?;
        // The handlers live as long as the process does, and so does the pipe.
        PIPE_OUT.store(read.into_raw_fd(), Ordering::SeqCst);
        PIPE.store(write.into_raw_fd(), Ordering::SeqCst);
        with_all_blocked(None, HEARD, || {
            install_all(ENDING);
            install_all([libc::SIGTSTP]);
            // Our caller may have ignored SIGCHLD; then the kernel would collect our command and its
            // exit code with it.
            IGNORED_CHILD.store(install(libc::SIGCHLD, 0), Ordering::SeqCst);
        });
        Ok(Self)
    }

    /// The signal that asks a command to end by default: SIGINT, or SIGTERM if our caller ignored
    /// SIGINT. A shell ignores it for what its scripts run in the background, and a command that has
    /// inherited that does not hear it.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that the signals were looked at"
    )]
    pub(crate) fn usual_request(self) -> c_int {
        if IGNORED_INTERRUPT.load(Ordering::SeqCst) {
            libc::SIGTERM
        } else {
            libc::SIGINT
        }
    }

    /// Collects also the signals that are passed on to a command. Called once there is one. A command
    /// in our own group is stopped by the terminal together with us, so there the stop keeps its
    /// meaning.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that the pipe is there"
    )]
    pub(crate) fn pass_on(self, own_group: bool) {
        let more = passed_on().fold(0, |bits, number| bits | 1 << (number - 1));
        let heard = HEARD.and(Mask(more));
        with_all_blocked(Some(received()), heard, || {
            install_all(passed_on());
            RUNNING.store(true, Ordering::SeqCst);
            if !own_group && !is_ignored(libc::SIGTSTP) {
                set_default(libc::SIGTSTP);
            }
        });
        // A stop that came after the last look for one and before this line. The command has to get it;
        // in a group that we share it has got it already.
        if own_group && PAUSE.swap(false, Ordering::SeqCst) {
            let stop = [u8::try_from(libc::SIGTSTP).unwrap_or(0), 0, 0, 0, 0, 0];
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

    /// Collects also what the kernel sends of the terminal that this process draws on: it has another size, or is this
    /// process's again after a stop.
    #[allow(
        clippy::unused_self,
        reason = "a value of this type proves that the pipe is there"
    )]
    pub(crate) fn hear_terminal(self) {
        let of_terminal = [libc::SIGWINCH, libc::SIGCONT];
        let heard = HEARD.and(Mask::of(&of_terminal));
        with_all_blocked(Some(received()), heard, || install_all(of_terminal));
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
        // First, so that no signal does now what it would not have done to the command.
        block_as_received();
        // Ignored signals were left alone. So a signal that has a handler was not ignored.
        for number in ENDING.into_iter().chain([libc::SIGTSTP]) {
            if !is_ignored(number) {
                set_default(number);
            }
        }
        for (number, ignored) in [
            (libc::SIGCHLD, &IGNORED_CHILD),
            (libc::SIGALRM, &IGNORED_ALARM),
            (libc::SIGIO, &IGNORED_IO),
        ] {
            if ignored.load(Ordering::SeqCst) {
                ignore(number);
            } else if !is_ignored(number) {
                set_default(number);
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
    pub(crate) fn next(self) -> Option<Arrival> {
        let mut bytes = [0; 6];
        match rustix::io::read(self.descriptor(), &mut bytes) {
            Ok(6) => {
                let [number, from_kernel, a, b, c, d] = bytes;
                Some(Arrival {
                    number: c_int::from(number),
                    from_kernel: from_kernel == 1,
                    sender: u32::from_ne_bytes([a, b, c, d]),
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

/// A signal by its number, also one for real time.
pub(crate) fn signal_of(number: c_int) -> Option<rustix::process::Signal> {
    use rustix::process::Signal;
    let real_time = || {
        // SAFETY: it is one of those that the C library leaves to programs.
        let signal = || unsafe { Signal::from_raw_unchecked(number) };
        passed_on().any(|known| known == number).then(signal)
    };
    Signal::from_named_raw(number).or_else(real_time)
}

/// Whether it asks this process to end.
pub(crate) fn ends(number: c_int) -> bool {
    ENDING.contains(&number)
}

/// Whether the kernel sends it for what happens on a terminal.
pub(crate) fn is_of_terminal(number: c_int) -> bool {
    [libc::SIGTSTP, libc::SIGWINCH, libc::SIGCONT].contains(&number) || ends(number)
}

/// The first signal that asked this process to end.
pub(crate) fn stop_asked() -> Option<c_int> {
    Some(STOP.load(Ordering::SeqCst)).filter(|number| *number != 0)
}

/// Has a signal noted as if a process had sent it, also where it is ignored.
pub(crate) fn arrive(number: c_int) {
    handler(number, ptr::null_mut(), ptr::null_mut());
}

/// The process of the two that this is.
pub(crate) enum Forked {
    /// The one that was there before, and the number of the new one.
    Parent(rustix::process::Pid),
    Child,
}

/// Makes a copy of this process. Called while it has one thread, and before signals are collected: the copy would share
/// their pipe.
pub(crate) fn fork() -> io::Result<Forked> {
    // Where it is ignored, the kernel would collect the copy, and its exit code with it.
    if is_ignored(libc::SIGCHLD) {
        set_default(libc::SIGCHLD);
    }
    // SAFETY: with one thread the copy is as whole as this process is.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        number => match rustix::process::Pid::from_raw(number) {
            Some(pid) => Ok(Forked::Parent(pid)),
            None => Err(io::ErrorKind::InvalidData.into()),
        },
    }
}

/// Whether the terminal asked this process to stop, and it has not stopped yet.
pub(crate) fn is_pause_asked() -> bool {
    PAUSE.load(Ordering::SeqCst)
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

/// Runs `action` without being stopped by the terminal: a process that is stopped in the middle of a
/// change keeps the guard from every other caller. A stop that came meanwhile takes effect afterwards.
pub(crate) fn unstopped<T>(action: impl FnOnce() -> T) -> T {
    blocking(&[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU], action)
}

fn blocking<T>(numbers: &[c_int], action: impl FnOnce() -> T) -> T {
    let before = Mask::of(numbers).apply(libc::SIG_BLOCK);
    let result = action();
    before.apply(libc::SIG_SETMASK);
    result
}

/// Makes the timer that interrupts a sleep, once.
fn prepare_timer() -> io::Result<()> {
    if timer::is_made() {
        return Ok(());
    }
    IGNORED_ALARM.store(install(libc::SIGALRM, 0), Ordering::SeqCst);
    // Where signals are collected, the alarm is let through already. `flock` collects none.
    if PIPE.load(Ordering::SeqCst) < 0 {
        let alarm = Mask::of(&[libc::SIGALRM]);
        let blocked = alarm.apply(libc::SIG_UNBLOCK).in_common(alarm);
        LET_THROUGH.store(blocked.0, Ordering::SeqCst);
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

/// Sleeps in the kernel on the main thread. A timer signal ends the sleep at its deadline; any signal
/// that asks us to end does so at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalSleeper(pub(crate) Signals);

/// Sleeps until it has the lock of a byte, and keeps it.
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
        if interruptible && WOKEN.swap(false, Ordering::SeqCst) {
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

/// Has the kernel send a signal once a wake-up can be read. True if it can be already.
fn listen(wake_up: BorrowedFd<'_>) -> io::Result<bool> {
    if install(libc::SIGIO, 0) {
        IGNORED_IO.store(true, Ordering::SeqCst);
    }
    let fd = wake_up.as_raw_fd();
    // SAFETY: plain calls on a descriptor that is open for as long as it is borrowed.
    let asked = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) == 0
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
    };
    if !asked {
        return Err(io::Error::last_os_error());
    }
    // A wake-up that came before this request is not signalled.
    let now = Some(instant());
    Ok(poll_readable(&[wake_up], Duration::ZERO, now)? == Wake::Ready)
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
        wake_up: Option<BorrowedFd<'_>>,
    ) -> io::Result<Wake> {
        if let Some(wake_up) = wake_up
            && listen(wake_up)?
        {
            return Ok(Wake::Ready);
        }
        let wake = sleep(file, lock, until, true)?;
        if wake == Wake::Ready {
            // After a wake-up there is nothing to give back, which is no error.
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
        // A stop that comes just before the sleep is followed by a beat, as for any other sleep. The beat is that of
        // the timer, which ends with an exec: an alarm would go on, and end the command of `run --exec`.
        prepare_timer()?;
        SLEEPING.store(true, Ordering::SeqCst);
        pause_if_asked();
        let wake = poll_readable(&all, nap, until);
        SLEEPING.store(false, Ordering::SeqCst);
        set_timer(Duration::ZERO);
        let wake = wake?;
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
    /// Whether this is a lock of fcntl(2) on the open file, in place of one of flock(2).
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
    /// - `WouldBlock` if another lock is in the way.
    /// - What the kernel says about the descriptor.
    pub(crate) fn at_once(self, descriptor: RawFd) -> io::Result<()> {
        self.uninterrupted(descriptor, false)
    }

    /// Does it, however long that takes.
    ///
    /// # Errors
    /// - What the kernel says about the descriptor.
    pub(crate) fn patiently(self, descriptor: RawFd) -> io::Result<()> {
        self.uninterrupted(descriptor, true)
    }

    /// Does it, whatever signal interrupts the call: some file systems answer so at once as well.
    fn uninterrupted(self, descriptor: RawFd, sleep: bool) -> io::Result<()> {
        loop {
            match self.call(descriptor, sleep) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Does it, and gives up once `patience` is over.
    ///
    /// # Errors
    /// - `TimedOut` if another lock was in the way for so long.
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

/// macOS has no real-time signals.
#[cfg(target_os = "macos")]
fn last_signal() -> c_int {
    libc::SIGUSR2
}

/// Lets a command begin with the signals as we were given them: those that are blocked, and SIGPIPE,
/// which would be set back. Only SIGCHLD gets its default meaning, for us and for the command: a
/// process that ignores it never learns how a child ended. A `SIGALRM` that was ignored is not ignored
/// again once it was needed, as with flock(1).
pub(crate) fn give_as_received(command: &mut Command) {
    set_default(libc::SIGCHLD);
    block_as_received();
    if IGNORED_PIPE.load(Ordering::SeqCst) {
        // SAFETY: between fork and exec only calls are made that a signal handler may make as well.
        unsafe {
            command.pre_exec(|| {
                ignore(libc::SIGPIPE);
                Ok(())
            });
        }
    }
}
