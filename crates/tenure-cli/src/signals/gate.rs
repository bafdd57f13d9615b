//! Starts a program that does nothing before its number is written down.
//!
//! Between a fork and the program there is a moment in which the child is ours and nothing of the
//! program has run. There it tells its number and waits for a byte. A number and a start time stay the
//! same when a process becomes a program, so what is written down in that moment is true of the
//! program.
//!
//! The standard library waits for the program in the thread that forks. So another thread forks, and
//! this one writes the number down.
//!
//! # Crash safety
//! The byte comes by a pipe whose other end only this process has. If it is killed before it has sent
//! the byte, the child reads the end of the pipe and ends, and the program never begins.
//!
//! The caller decides what is written down, and where.

use super::{ENDING, for_a_thread, is_ignored, passed_on, received, set_default};
use libc::c_int;
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// The signals that have a handler of ours, which the child must not run.
const HANDLED: [c_int; 5] = [
    libc::SIGTSTP,
    libc::SIGCHLD,
    libc::SIGALRM,
    libc::SIGIO,
    libc::SIGXFSZ,
];

/// A pipe that blocks and that no program inherits.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = super::pipe()?;
    for end in [&read, &write] {
        rustix::io::ioctl_fionbio(end, false)?;
    }
    Ok((read, write))
}

/// Starts a program once `known` has written down its number. If that fails, nothing of it has run.
///
/// # Errors
/// - The error of the system, if it does not start the program.
pub(crate) fn spawn_known<T, E>(
    command: &mut Command,
    known: impl FnOnce(u32) -> Result<T, E>,
) -> io::Result<Result<(Child, T), E>> {
    let (number, tells) = pipe()?;
    let (waits, go) = pipe()?;
    let ends = [tells.as_raw_fd(), waits.as_raw_fd()];
    let parents = [number.as_raw_fd(), go.as_raw_fd()];
    // SAFETY: between fork and exec only calls are made that a signal handler may make as well, on
    // descriptors that are open for as long as the forking thread runs.
    unsafe {
        command.pre_exec(move || wait_for_the_word(ends, parents));
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tenure-start".to_owned());
        let start = move || {
            let child = command.spawn();
            // Without a fork no child tells its number.
            drop(tells);
            child
        };
        let starting = for_a_thread(|| thread.spawn_scoped(scope, start))?;
        let told = read_number(&number);
        let written = told.map(known);
        if let Some(Ok(_)) = &written {
            // A child that was killed meanwhile reads nothing.
            let _ = retry_on_intr(|| rustix::io::write(&go, &[1]));
        }
        drop(go);
        let ended = || io::Error::other("the thread that starts programs has ended");
        let child = starting.join().map_err(|_| ended())?;
        match written {
            Some(Err(error)) => {
                // The child has ended without the byte. If it is there all the same, it is collected
                // here.
                let _ = child.map(|mut child| child.wait());
                Ok(Err(error))
            }
            Some(Ok(written)) => Ok(Ok((child?, written))),
            None => {
                // The child was killed before it could tell its number, or not even forked.
                child.and_then(|mut child| child.wait())?;
                Err(Errno::CANCELED.into())
            }
        }
    })
}

fn read_number(number: &OwnedFd) -> Option<u32> {
    let mut bytes = [0; 4];
    // Four bytes come through a pipe at once or not at all.
    let read = retry_on_intr(|| rustix::io::read(number, &mut bytes));
    (read == Ok(bytes.len())).then(|| u32::from_ne_bytes(bytes))
}

/// In the child: tells its number and waits. All signals are blocked here.
fn wait_for_the_word(ends: [RawFd; 2], parents: [RawFd; 2]) -> io::Result<()> {
    let [tells, waits] = ends;
    // SAFETY: plain system calls; the buffers live until they return.
    unsafe {
        // Our own copy of the parent's end would keep the pipe open after the parent's death.
        for end in parents {
            libc::close(end);
        }
        let number = libc::getpid().unsigned_abs().to_ne_bytes();
        libc::write(tells, number.as_ptr().cast(), number.len());
        let mut word = [0_u8];
        loop {
            match libc::read(waits, word.as_mut_ptr().cast(), 1) {
                1 => break,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            }
        }
    }
    // Signals that came meanwhile are for the program, and must not run a handler of ours in its place.
    for number in ENDING.into_iter().chain(passed_on()).chain(HANDLED) {
        if !is_ignored(number) {
            set_default(number);
        }
    }
    received().apply(libc::SIG_SETMASK);
    Ok(())
}
