//! How a thread sleeps in the kernel until a byte is let go or a descriptor has news.
//!
//! A command owns its process and can have a sleeping system call interrupted by a timer signal;
//! the library can not, and lets a parked thread sleep in its place ([`ThreadSleeper`]).

use super::bytes::{self, Byte, Mode};
use crate::clock::instant;
use crate::store::Wake;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A byte and how it is to be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteLock {
    /// The byte.
    pub byte: Byte,
    /// The way.
    pub mode: Mode,
}

impl ByteLock {
    /// Takes the byte, sleeping for as long as it takes.
    ///
    /// # Errors
    /// - [`io::ErrorKind::Interrupted`] when a signal handler ran; nothing is taken then.
    pub fn take(self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(bytes::lock(file, self.byte, self.mode)?)
    }

    /// Takes the byte if that is possible at once.
    ///
    /// # Errors
    /// - Whatever the system answers, apart from *somebody else has it*.
    pub fn try_take(self, file: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(bytes::try_lock(file, self.byte, self.mode)?)
    }

    /// Lets go of it.
    ///
    /// # Errors
    /// - Whatever the system answers.
    pub fn give_back(self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(bytes::unlock(file, self.byte)?)
    }
}

/// The ways to sleep that a file store needs.
pub trait Sleeper {
    /// Takes a byte that is held for moments only, and keeps it. Never interrupted; ends with
    /// [`Wake::Expired`] after `patience`.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn lock(&self, file: BorrowedFd<'_>, lock: ByteLock, patience: Duration) -> io::Result<Wake>;

    /// Sleeps until a byte can be taken, and gives it back at once.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn pass(
        &self,
        file: BorrowedFd<'_>,
        lock: ByteLock,
        until: Option<Instant>,
    ) -> io::Result<Wake>;

    /// Sleeps until one of the descriptors has news, at most for `nap` (which counts as news).
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn poll(
        &self,
        fds: &[BorrowedFd<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake>;
}

/// Sleeps without signals: a helper thread blocks in the kernel, the caller waits for the thread.
///
/// A helper whose caller has gone at its deadline stays parked until the byte is let go, gives it
/// back and ends. It sleeps *shared* on somebody else's byte, so it never stands in anyone's way.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadSleeper;

/// The first and the longest pause between two tries for the guard, which is held for
/// microseconds.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);

impl Sleeper for ThreadSleeper {
    fn lock(&self, file: BorrowedFd<'_>, lock: ByteLock, patience: Duration) -> io::Result<Wake> {
        let until = instant() + patience;
        let mut pause = PAUSE_MIN;
        while !lock.try_take(file)? {
            if instant() >= until {
                return Ok(Wake::Expired);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(Wake::Ready)
    }

    fn pass(
        &self,
        file: BorrowedFd<'_>,
        lock: ByteLock,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        if lock.try_take(file)? {
            lock.give_back(file)?;
            return Ok(Wake::Ready);
        }
        let own = file.try_clone_to_owned()?;
        let (done, wait) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("tenure-wait".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || {
                let result = loop {
                    match lock.take(own.as_fd()) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        other => break other,
                    }
                };
                let given_back = lock.give_back(own.as_fd());
                // The caller may have gone home.
                let _ = done.send(result.and(given_back));
            })?;
        let answer = match until {
            None => wait
                .recv()
                .map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(until) => wait.recv_timeout(until.saturating_duration_since(instant())),
        };
        match answer {
            Ok(result) => result.map(|()| Wake::Ready),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(Wake::Expired),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the waiting thread ended early"))
            }
        }
    }

    fn poll(
        &self,
        fds: &[BorrowedFd<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        poll_readable(fds, nap, until)
    }
}

/// Waits until one of the descriptors can be read, `nap` is over (which counts as news), or
/// `until` has come. A signal handler that runs meanwhile counts as news too.
///
/// # Errors
/// - Whatever the system answers.
pub fn poll_readable(
    fds: &[BorrowedFd<'_>],
    nap: Duration,
    until: Option<Instant>,
) -> io::Result<Wake> {
    let rest = until.map(|until| until.saturating_duration_since(instant()));
    let timeout = rest.map_or(nap, |rest| rest.min(nap));
    let timespec = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll(&mut polled, Some(&timespec)) {
        Ok(0) if rest.is_some_and(|rest| rest <= nap) => Ok(Wake::Expired),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(Wake::Ready),
        Err(errno) => Err(errno.into()),
    }
}
