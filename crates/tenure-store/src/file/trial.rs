//! Tries whether the locks of a file system hold between two processes, with a file of its own.
//!
//! Two processes try. The first keeps two bytes; the other is refused the first byte, waits for it in the kernel
//! as a waiter does, gets it when it is released, and is ended: with that the byte has to be free again. The
//! calls are those by which the store locks, on bytes that no lock has.
//!
//! **Nothing is left behind, whichever of the two dies.** The file has no name; where a file system knows no such
//! files, its name is removed before the trial begins. The other process sleeps for bytes that the first one
//! keeps, so it ends with it.
//!
//! What it leaves to its caller: how the other process is started and ended.

use super::bytes::{self, Byte, Mode};
use super::folder::{fault, io_fault};
use crate::StoreError;
use std::io;
use std::path::Path;
use std::time::Duration;
use tenure_os::clock::{instant, nap};
use tenure_os::os::{self, BorrowedDescriptor, Descriptor, Errno, Open};
use tenure_os::private::new_name;

/// How much a new lock takes on the disk.
const ROOM_BYTES: usize = 16 << 10;

/// How long a byte may take to be free after the process that had it was collected. Between processes of one
/// machine it is free before that.
const FREED_WITHIN: Duration = Duration::from_millis(500);

/// What the other process says.
const REFUSED: u8 = b'r';
const TAKEN: u8 = b't';

/// The file of a trial, open twice: the locks of the one meet those of the other.
#[derive(Debug)]
pub struct Trial {
    ours: Descriptor,
    other: Option<Descriptor>,
}

/// The process that takes the other part.
pub trait Other {
    /// What it says next; `None` if it has ended, or says nothing within a bounded time.
    fn says(&mut self) -> Option<u8>;

    /// Kills it, and collects it.
    fn end(&mut self);
}

/// What a trial has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialResult {
    /// The locks hold.
    Holds,
    /// The locks do not hold: what happened.
    Fails(&'static str),
    /// The other process could not take its part.
    Nothing,
}

impl Trial {
    /// Makes the file in a folder. `None` if it would need a name, and may have none.
    pub(super) fn make(
        folder: &Descriptor,
        at: &Path,
        may_have_name: bool,
    ) -> Result<Option<Self>, StoreError> {
        let failed = |errno| fault(at, "trying to write in it", errno);
        if let Some(ours) = os::nameless_file(folder).map_err(failed)? {
            // A strict umask took rights that the second opening needs.
            os::keep_to_owner(&ours).map_err(failed)?;
            let other = os::reopened(os::borrow(&ours), true).ok();
            return Ok(Some(Self { ours, other }));
        }
        if !may_have_name {
            return Ok(None);
        }
        let name = new_name("trial");
        let made = os::open_file(folder, &name, Open::New).and_then(|new| {
            os::keep_to_owner(&new)?;
            let ours = os::open_file(folder, &name, Open::Change)?;
            Ok((ours, os::open_file(folder, &name, Open::Change).ok()))
        });
        let removed = os::remove(folder, &name);
        let (ours, other) = made.map_err(failed)?;
        removed.map_err(failed)?;
        Ok(Some(Self { ours, other }))
    }

    /// Writes as much as a new lock takes.
    ///
    /// # Errors
    /// - [`StoreError`] if there is no room, as a call would get it.
    pub fn write(&self, at: &Path) -> Result<(), StoreError> {
        let bytes = [b'\n'; ROOM_BYTES];
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let offset = u64::try_from(written).unwrap_or(0);
            match os::uninterrupted(|| os::write_at(&self.ours, rest, offset)) {
                Ok(0) => {
                    let none = io::ErrorKind::WriteZero.into();
                    return Err(io_fault(at, "trying to write in it", none));
                }
                Ok(more) => written += more,
                Err(errno) => return Err(fault(at, "trying to write in it", errno)),
            }
        }
        Ok(())
    }

    /// The file for the other process: an open file of its own. `None` where the system gives none. This process
    /// keeps its copy for [`Trial::alone`], until [`Trial::hand_over`].
    pub fn other(&self) -> Option<Descriptor> {
        os::borrow(self.other.as_ref()?).try_clone_to_owned().ok()
    }

    /// The other process was started: from now on it alone has its open file, so that its end ends its locks.
    pub fn hand_over(&mut self) {
        self.other = None;
    }

    /// Keeps the bytes that the other process is to be refused. This comes before it is started.
    ///
    /// # Errors
    /// - The system's answer, where there are no such locks.
    pub fn begin(&self) -> io::Result<()> {
        for byte in [Byte::TRIED, Byte::KEPT] {
            if !bytes::try_lock(self.fd(), byte, Mode::Exclusive)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// Goes through the trial with the other process, which has been started, and ends it in any case.
    pub fn with(&self, other: &mut dyn Other) -> TrialResult {
        let shown = self.shown_with(other);
        other.end();
        match shown {
            Ok(TrialResult::Holds) => self.after_its_end(),
            Ok(shown) => shown,
            Err(_) => TrialResult::Nothing,
        }
    }

    fn shown_with(&self, other: &mut dyn Other) -> Result<TrialResult, Errno> {
        match other.says() {
            Some(REFUSED) => {}
            Some(_) => {
                return Ok(TrialResult::Fails(
                    "two processes got one lock at the same time",
                ));
            }
            None => return Ok(TrialResult::Nothing),
        }
        bytes::unlock(self.fd(), Byte::TRIED)?;
        match other.says() {
            Some(TAKEN) => {}
            Some(_) => {
                return Ok(TrialResult::Fails(
                    "a waiter did not get a lock that was released",
                ));
            }
            // The other process has ended, or the machine is slow, or it was stopped: that says nothing
            // about the locks.
            None => return Ok(TrialResult::Nothing),
        }
        if bytes::try_lock(self.fd(), Byte::TRIED, Mode::Exclusive)? {
            return Ok(TrialResult::Fails(
                "two processes got one lock, one after the other",
            ));
        }
        Ok(TrialResult::Holds)
    }

    /// The other process had the byte when it was ended.
    fn after_its_end(&self) -> TrialResult {
        let until = instant() + FREED_WITHIN;
        loop {
            // Looked at before the byte: a process that was stopped in between tries once more.
            let is_late = instant() >= until;
            match bytes::try_lock(self.fd(), Byte::TRIED, Mode::Exclusive) {
                Ok(true) => return TrialResult::Holds,
                Ok(false) if !is_late => nap(Duration::from_millis(5)),
                Ok(false) => return TrialResult::Fails("a lock outlived the process that had it"),
                Err(_) => return TrialResult::Nothing,
            }
        }
    }

    /// Tries it between two open files of this process alone, where no other process can be started.
    pub fn alone(&self) -> TrialResult {
        let Some(other) = &self.other else {
            return TrialResult::Nothing;
        };
        match bytes::try_lock(os::borrow(other), Byte::TRIED, Mode::Exclusive) {
            Ok(false) => TrialResult::Holds,
            Ok(true) => TrialResult::Fails("two open files got one lock at the same time"),
            Err(_) => TrialResult::Nothing,
        }
    }

    fn fd(&self) -> BorrowedDescriptor<'_> {
        os::borrow(&self.ours)
    }
}

/// The part of the other process: it has the file, and says what becomes of its calls.
///
/// # Errors
/// - The system's answer to a call, or that of `say`.
pub fn take_part(
    file: BorrowedDescriptor<'_>,
    say: &mut dyn FnMut(u8) -> io::Result<()>,
) -> io::Result<()> {
    let is_taken = bytes::try_lock(file, Byte::TRIED, Mode::Exclusive)?;
    say(if is_taken { TAKEN } else { REFUSED })?;
    if is_taken {
        return Ok(());
    }
    os::uninterrupted(|| bytes::lock(file, Byte::TRIED, Mode::Exclusive))?;
    say(TAKEN)?;
    // For as long as the first process lives and does not end this one.
    os::uninterrupted(|| bytes::lock(file, Byte::KEPT, Mode::Exclusive))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// A thread in place of the other process: its open file is another one, as that of a process is.
    struct Thread(Receiver<u8>);

    impl Other for Thread {
        fn says(&mut self) -> Option<u8> {
            self.0.recv_timeout(Duration::from_secs(20)).ok()
        }

        fn end(&mut self) {}
    }

    fn trial(folder: &Path) -> Trial {
        let fd = os::open_folder(folder).expect("a folder");
        let made = Trial::make(&fd, folder, true).expect("a file");
        made.expect("it may have a name")
    }

    #[test]
    fn locks_that_hold_outlive_no_process_and_a_process_that_lives_is_seen_to_have_its_lock() {
        let scratch = tempfile::tempdir().expect("a folder");
        let mut trial = trial(scratch.path());
        trial.write(scratch.path()).expect("room");
        let left = std::fs::read_dir(scratch.path()).expect("a folder").count();
        assert_eq!(left, 0, "it has no name");
        trial.begin().expect("its own bytes");
        let other = trial.other().expect("another open file");
        trial.hand_over();
        let (says, heard) = channel();
        let thread = std::thread::spawn(move || {
            let mut say = |byte| {
                says.send(byte)
                    .map_err(|_| io::ErrorKind::BrokenPipe.into())
            };
            take_part(os::borrow(&other), &mut say)
        });
        // The thread does not end, so what it took stays taken.
        let shown = trial.with(&mut Thread(heard));
        assert_eq!(
            shown,
            TrialResult::Fails("a lock outlived the process that had it")
        );
        drop(trial);
        thread.join().expect("it ends").expect("without an error");
    }

    #[test]
    fn locks_that_two_processes_get_do_not_hold() {
        let scratch = tempfile::tempdir().expect("a folder");
        for (said, shown) in [
            (&[TAKEN][..], "two processes got one lock at the same time"),
            (
                &[REFUSED, REFUSED],
                "a waiter did not get a lock that was released",
            ),
            // The other process says that it has the lock, and has not.
            (
                &[REFUSED, TAKEN],
                "two processes got one lock, one after the other",
            ),
        ] {
            let trial = trial(scratch.path());
            trial.begin().expect("its own bytes");
            let (says, heard) = channel();
            for byte in said {
                says.send(*byte).expect("a listener");
            }
            drop(says);
            assert_eq!(trial.with(&mut Thread(heard)), TrialResult::Fails(shown));
        }
        // The other process is slow, or has ended: nothing is known.
        for said in [&[][..], &[REFUSED]] {
            let trial = trial(scratch.path());
            trial.begin().expect("its own bytes");
            let (says, heard) = channel();
            for byte in said {
                says.send(*byte).expect("a listener");
            }
            drop(says);
            assert_eq!(trial.with(&mut Thread(heard)), TrialResult::Nothing);
        }
        let alone = trial(scratch.path());
        assert!(alone.other().is_some(), "one that could not be started");
        alone.begin().expect("its own bytes");
        assert_eq!(alone.alone(), TrialResult::Holds);
    }
}
