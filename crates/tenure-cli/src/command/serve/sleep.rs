//! How a wait of `serve` sleeps until a byte of a file is released.
//!
//! No call of any system waits for a byte and for a cancel at once. So a thread sleeps on the byte in the kernel and tells
//! the waits. Nothing ends it before the byte is released. So there is **one for each byte**, however many waits for it
//! begin and end: a program that asks again and again for locks that are held adds none.
//!
//! When a wait sleeps, and on which byte, the store decides.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tenure_engine::cancel;
use tenure_engine::clock::instant;
use tenure_engine::os::{self, Bell, BorrowedDescriptor, Ringer};
use tenure_engine::store::Wake;
use tenure_engine::store::file::{ByteLock, Mode, Sleeper, ThreadSleeper};

/// Enough for a thread that makes two system calls and rings.
const STACK: usize = 65_536;

/// The sleep of all waits of this process.
#[derive(Clone, Default)]
pub(super) struct SharedSleeper(Arc<Mutex<Vec<Asleep>>>);

/// A thread that sleeps on a byte, and the waits that it tells.
struct Asleep {
    on: Sought,
    told: Vec<Weak<Told>>,
}

/// A byte of a file. The file keeps its number while the thread has it open.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sought {
    file: (u64, u64),
    lock: ByteLock,
}

/// What a wait is told.
struct Told {
    /// The byte was released, or the number of the error with which the sleep ended.
    ended: Mutex<Option<Result<(), i32>>>,
    changed: Condvar,
    /// For a wait that also looks at a descriptor. The others open no pipe.
    ringer: Option<Ringer>,
}

impl Told {
    fn ended(&self) -> MutexGuard<'_, Option<Result<(), i32>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the wait. It looks at what woke it under the mutex, so it cannot fall asleep past this.
    fn wake(&self) {
        drop(self.ended());
        self.changed.notify_all();
        if let Some(ringer) = &self.ringer {
            ringer.ring();
        }
    }
}

impl SharedSleeper {
    fn asleep(&self) -> MutexGuard<'_, Vec<Asleep>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the end of a byte told to a wait.
    fn tell(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        told: &Arc<Told>,
    ) -> io::Result<()> {
        let facts = fstat(file)?;
        #[allow(
            clippy::cast_sign_loss,
            clippy::unnecessary_cast,
            reason = "the field's type differs between platforms"
        )]
        let file_number = (facts.st_dev as u64, facts.st_ino as u64);
        let on = Sought {
            file: file_number,
            lock,
        };
        let mut asleep = self.asleep();
        if let Some(known) = asleep.iter_mut().find(|known| known.on == on) {
            known.told.retain(|told| told.strong_count() > 0);
            known.told.push(Arc::downgrade(told));
            return Ok(());
        }
        // An open file of its own: it keeps no liveness lock of this process held.
        let own = os::reopen(file, lock.mode == Mode::Exclusive)?;
        let all = self.clone();
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn(move || {
            let ended = lock.sleep(os::borrow(&own));
            all.end(
                on,
                ended.map_err(|error| error.raw_os_error().unwrap_or_default()),
            );
        })?;
        asleep.push(Asleep {
            on,
            told: vec![Arc::downgrade(told)],
        });
        Ok(())
    }

    /// A thread has slept. A wait that comes now has another one.
    fn end(&self, on: Sought, ended: Result<(), i32>) {
        let mut asleep = self.asleep();
        let index = asleep.iter().position(|known| known.on == on);
        let told = index.map(|index| asleep.swap_remove(index).told);
        drop(asleep);
        for told in told.iter().flatten().filter_map(Weak::upgrade) {
            *told.ended() = Some(ended);
            told.wake();
        }
    }
}

impl Sleeper for SharedSleeper {
    fn lock(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        patience: Duration,
    ) -> io::Result<Wake> {
        ThreadSleeper.lock(file, lock, patience)
    }

    fn pass(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        wake_up: Option<BorrowedDescriptor<'_>>,
    ) -> io::Result<Wake> {
        if lock.try_take(file)? {
            lock.give_back(file)?;
            return Ok(Wake::Ready);
        }
        if until.is_some_and(|until| until <= instant()) {
            return Ok(Wake::Expired);
        }
        let (bell, ringer) = match wake_up {
            Some(_) => Some(os::bell()?).unzip(),
            None => (None, None),
        };
        let told = Arc::new(Told {
            ended: Mutex::new(None),
            changed: Condvar::new(),
            ringer,
        });
        let cancel = cancel::heard();
        let _rings = cancel.as_ref().map(|cancel| {
            let told = Arc::clone(&told);
            cancel::rings(cancel, move || told.wake())
        });
        self.tell(file, lock, &told)?;
        loop {
            let ended = told.ended();
            if cancel.as_ref().is_some_and(cancel::Cancel::is_cancelled) {
                return Ok(Wake::Interrupted);
            }
            match *ended {
                Some(Ok(())) => return Ok(Wake::Ready),
                Some(Err(number)) => return Err(io::Error::from_raw_os_error(number)),
                None => {}
            }
            let rest = until.map(|until| until.saturating_duration_since(instant()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(Wake::Expired);
            }
            if let (Some(bell), Some(wake_up)) = (&bell, wake_up) {
                drop(ended);
                if is_called(bell, wake_up, rest)? {
                    return Ok(Wake::Ready);
                }
            } else if let Some(rest) = rest {
                drop(told.changed.wait_timeout(ended, rest));
            } else {
                drop(told.changed.wait(ended));
            }
        }
    }

    fn poll(
        &self,
        fds: &[BorrowedDescriptor<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        ThreadSleeper.poll(fds, nap, until)
    }
}

/// Sleeps until the bell rings or the time is over. True if the descriptor became readable: the store reads why.
fn is_called(
    bell: &Bell,
    wake_up: BorrowedDescriptor<'_>,
    rest: Option<Duration>,
) -> io::Result<bool> {
    let descriptor = bell.descriptor();
    let mut fds = [&descriptor, &wake_up].map(|fd| PollFd::new(fd, PollFlags::IN));
    let rest = rest.map(|rest| Timespec {
        tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: rest.subsec_nanos().into(),
    });
    match poll(&mut fds, rest.as_ref()) {
        Ok(_) => {
            bell.hear();
            let [_, wake_up] = fds;
            Ok(!wake_up.revents().is_empty())
        }
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
