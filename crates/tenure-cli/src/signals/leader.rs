//! Makes a process group whose leader has ended already.
//!
//! A command in a group of its own must not lead that group. setsid(1) forks where it leads one, so its program would go
//! on while the command counts as ended, and a program that calls setsid(2) is refused. So a process of an instant leads
//! the group: it makes the group and ends. A dead leader keeps its group until it is collected, and from then on the
//! members keep the group.

use libc::{c_int, c_void};
use rustix::process::Pid;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// The leader, which has ended and was not collected yet.
#[derive(Debug)]
pub(crate) struct Leader(Pid);

impl Leader {
    /// Makes a group in which the command starts. `None` if the system makes no process: then the command leads the group
    /// itself.
    pub(crate) fn of(command: &mut Command) -> Option<Self> {
        let leader = make().and_then(Pid::from_raw).map(Self);
        command.process_group(leader.as_ref().map_or(0, |leader| leader.0.as_raw_pid()));
        leader
    }

    /// The number of the group.
    pub(crate) fn group(&self) -> Pid {
        self.0
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let number = self.0.as_raw_pid();
        loop {
            // SAFETY: a plain system call on a child that no other code knows.
            let collected = unsafe { libc::waitpid(number, ptr::null_mut(), ALL_KINDS) };
            let interrupted =
                || std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
            if collected != -1 || !interrupted() {
                return;
            }
        }
    }
}

/// In the leader.
extern "C" fn lead(_: *mut c_void) -> c_int {
    // SAFETY: a plain system call.
    unsafe { libc::setpgid(0, 0) }
}

/// Children that report no end are collected by those who ask for them.
#[cfg(target_os = "linux")]
const ALL_KINDS: c_int = libc::__WALL;
#[cfg(not(target_os = "linux"))]
const ALL_KINDS: c_int = 0;

/// The leader shares the memory of this process, which stands still until the leader has ended: nothing is copied. It
/// reports no end, so nothing that collects children sees it.
#[cfg(target_os = "linux")]
fn make() -> Option<c_int> {
    use std::mem::MaybeUninit;
    /// Room for the leader's one call.
    const STACK: usize = 16 * 1024;
    let mut stack: Vec<MaybeUninit<u128>> = vec![MaybeUninit::uninit(); STACK / size_of::<u128>()];
    // The stack grows downwards on every architecture that Linux and Rust both know.
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    // SAFETY: the stack lives until the leader has ended, and the leader makes one system call. No handler of ours runs in
    // it, for all signals are blocked meanwhile.
    let pid = unsafe {
        let mut all: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        let mut before: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::clone(
            lead,
            top,
            libc::CLONE_VM | libc::CLONE_VFORK,
            ptr::null_mut(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        pid
    };
    (pid > 0).then_some(pid)
}

#[cfg(not(target_os = "linux"))]
fn make() -> Option<c_int> {
    // SAFETY: the child makes one system call and ends.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(lead(ptr::null_mut()));
        }
        if pid > 0 {
            // Whichever of the two is first.
            libc::setpgid(pid, pid);
        }
        pid
    };
    (pid > 0).then_some(pid)
}
