//! How a thread sleeps in the kernel until a byte is released or a descriptor becomes readable.
//!
//! A command owns its process and can have a timer signal interrupt a sleeping system call. The library
//! cannot, and lets a parked thread sleep in the caller's place ([`ThreadSleeper`]).

use super::bytes::{self, Byte, Mode};
use crate::cancel;
use crate::clock::{instant, nap, rest_until, since};
use crate::os::{self, BorrowedDescriptor, Errno};
use crate::store::Wake;
use crate::sync::locked;
use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A byte, and the mode in which to lock it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteLock {
    /// The byte.
    pub byte: Byte,
    /// The mode.
    pub mode: Mode,
}

impl ByteLock {
    /// Takes the byte, and sleeps until that is possible.
    ///
    /// # Errors
    /// - [`io::ErrorKind::Interrupted`] when a signal handler ran; nothing is taken then.
    pub fn take(self, file: BorrowedDescriptor<'_>) -> io::Result<()> {
        Ok(bytes::lock(file, self.byte, self.mode)?)
    }

    /// Sleeps until the byte can be taken, however often a signal handler runs, and gives it back.
    ///
    /// # Errors
    /// - Whatever the system answers.
    #[doc(hidden)] // For our own sleepers: the one of `serve` is in the program.
    pub fn sleep(self, file: BorrowedDescriptor<'_>) -> io::Result<()> {
        let taken = os::uninterrupted(|| bytes::lock(file, self.byte, self.mode));
        let given_back = self.give_back(file);
        taken?;
        given_back
    }

    /// Takes the byte if that is possible at once.
    ///
    /// # Errors
    /// - Whatever the system answers, except that another open file has the byte.
    pub fn try_take(self, file: BorrowedDescriptor<'_>) -> io::Result<bool> {
        Ok(bytes::try_lock(file, self.byte, self.mode)?)
    }

    /// Releases the byte.
    ///
    /// # Errors
    /// - Whatever the system answers.
    pub fn give_back(self, file: BorrowedDescriptor<'_>) -> io::Result<()> {
        Ok(bytes::unlock(file, self.byte)?)
    }
}

/// The ways to sleep that a file store needs. One store may be used by several threads at once.
pub trait Sleeper: Send + Sync {
    /// Takes a byte that other callers hold for moments only, and keeps it. Never interrupted; ends with
    /// [`Wake::Expired`] after `patience`.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn lock(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        patience: Duration,
    ) -> io::Result<Wake>;

    /// Sleeps until a byte can be taken, and releases it at once. The sleep also ends when `wake_up`
    /// becomes readable, which calls the sleeper itself.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn pass(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        wake_up: Option<BorrowedDescriptor<'_>>,
    ) -> io::Result<Wake>;

    /// Sleeps until one of the descriptors is readable, at most for `nap`; the end of the nap counts as
    /// ready.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn poll(
        &self,
        fds: &[BorrowedDescriptor<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake>;
}

/// Sleeps without signals: a helper thread blocks in the kernel, and the caller waits for the thread.
///
/// If the caller leaves at its deadline, the helper stays parked until the byte is released; then it
/// gives the byte back. It sleeps *shared* on another claim's byte, so it never blocks another
/// caller. Where the system can open a file once more, it has an open file of its own, so that it keeps
/// no liveness lock of its caller held. A caller that sleeps again behind the same byte finds its helper there; there is never a second one for
/// the same wait.
///
/// A helper that has nothing to do waits a little for its caller's next sleep. A caller that loops would else start a
/// thread for each wait. And where there are few processors, the caller that was woken would wait for the end of that
/// thread.
///
/// A [`crate::cancel::Cancel`] that reaches a wait ends it at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadSleeper;

/// How often, and for how long at most, the guard is tried for before the first pause. On a busy machine a
/// single yield takes longer than that pause, and among many waiters so does a single try.
const YIELDS_MAX: u32 = 20;
const YIELDING_MAX: Duration = Duration::from_micros(50);

/// The first and the longest pause between two tries for the guard, which other callers hold for
/// microseconds.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// The pause after this one.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

impl Sleeper for ThreadSleeper {
    fn lock(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        patience: Duration,
    ) -> io::Result<Wake> {
        // Mostly the guard is free again before a nap could begin, and a nap lasts longer than it is asked to.
        let began = instant();
        for _ in 0..YIELDS_MAX {
            if lock.try_take(file)? {
                return Ok(Wake::Ready);
            }
            if since(began) >= YIELDING_MAX.min(patience) {
                break;
            }
            std::thread::yield_now();
        }
        let until = began + patience;
        let mut pause = PAUSE_MIN;
        while !lock.try_take(file)? {
            if instant() >= until {
                return Ok(Wake::Expired);
            }
            nap(pause);
            pause = longer(pause);
        }
        Ok(Wake::Ready)
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
        if until.is_some_and(|until| rest_until(until).is_none()) {
            return Ok(Wake::Expired);
        }
        let of = Sought::of(file, lock)?;
        let mut helper = match PARKED.take().filter(Helper::is_here) {
            Some(parked) if parked.of == Some(of) => parked,
            Some(idle) if idle.of.is_none() => idle.again(file, of)?,
            Some(_) | None => Helper::start(Work::new(file, lock)?, of)?,
        };
        let cancel = cancel::heard();
        let caller = helper.caller.clone();
        // A cancel may come after this wait is over; then no thread receives it.
        let _bell = cancel
            .as_ref()
            .map(|cancel| cancel.ring(move || drop(caller.send(Word::Called))));
        let is_cancelled = || cancel.as_ref().is_some_and(cancel::Cancel::is_cancelled);
        if is_cancelled() {
            PARKED.set(Some(helper));
            return Ok(Wake::Interrupted);
        }
        if let Some(wake_up) = wake_up {
            return helper.wait_for_wake_up(wake_up, until, &is_cancelled);
        }
        loop {
            let word = match until {
                None => helper
                    .words
                    .recv()
                    .map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(until) => {
                    let rest = until.saturating_duration_since(instant());
                    helper.words.recv_timeout(rest)
                }
            };
            match word {
                Ok(Word::Ended(result)) => {
                    helper.of = None;
                    PARKED.set(Some(helper));
                    return result.map(|()| Wake::Ready);
                }
                // A cancel that came for an earlier wait of this thread does not end this one.
                Ok(Word::Called) if !is_cancelled() => {}
                Ok(Word::Called) => {
                    PARKED.set(Some(helper));
                    return Ok(Wake::Interrupted);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    PARKED.set(Some(helper));
                    return Ok(Wake::Expired);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ended_early()),
            }
        }
    }

    fn poll(
        &self,
        fds: &[BorrowedDescriptor<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        let Some(cancel) = cancel::heard() else {
            return poll_readable(fds, nap, until);
        };
        let (hears, calls) = os::bell()?;
        let _bell = cancel.ring(move || calls.ring());
        if cancel.is_cancelled() {
            return Ok(Wake::Interrupted);
        }
        let mut all = fds.to_vec();
        all.push(hears.descriptor());
        let wake = poll_readable(&all, nap, until)?;
        Ok(if cancel.is_cancelled() {
            Wake::Interrupted
        } else {
            wake
        })
    }
}

thread_local! {
    /// The helper of this thread: one without work, or one that the last wait left behind at its deadline. A thread
    /// waits for one thing at a time, so one is enough.
    static PARKED: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// What a helper sleeps on: a byte of a file. A file keeps its inode while the helper has it open, and a
/// ticket belongs to one place for good. Only a caller that comes back to a reserved place takes a
/// released byte again. A waiter whose helper saw the earlier release then looks once for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sought {
    inode: (u64, u64),
    lock: ByteLock,
}

impl Sought {
    fn of(file: BorrowedDescriptor<'_>, lock: ByteLock) -> io::Result<Self> {
        let inode = os::facts(file)?.inode();
        Ok(Self { inode, lock })
    }
}

/// A thread that sleeps in the kernel in a caller's place.
struct Helper {
    /// What it sleeps on; `None` for one that has nothing to do.
    of: Option<Sought>,
    words: mpsc::Receiver<Word>,
    /// The way by which a cancel reaches the caller.
    caller: mpsc::Sender<Word>,
    desk: Arc<Desk>,
    /// The process in which the thread is. A copy that a fork made has the caller alone.
    pid: u32,
}

/// A byte to sleep on, and an open file of the helper's own.
struct Work {
    lock: ByteLock,
    file: os::Descriptor,
}

/// Where a helper without work finds its next one.
#[derive(Default)]
struct Desk {
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Default)]
enum Next {
    #[default]
    Nothing,
    Work(Work),
    /// The thread has ended, and takes no more.
    Closed,
}

impl Desk {
    /// Leaves work for the thread; gives it back if the thread has ended.
    fn leave(&self, work: Work) -> Option<Work> {
        let mut next = locked(&self.next);
        if matches!(*next, Next::Closed) {
            return Some(work);
        }
        *next = Next::Work(work);
        self.changed.notify_one();
        None
    }

    /// Waits for work. `None` if none came within [`IDLE_MAX`]; then the desk is closed. Both under the mutex: no
    /// work is left for a thread that has gone.
    fn take(&self) -> Option<Work> {
        let next = locked(&self.next);
        let is_empty = |next: &mut Next| matches!(next, Next::Nothing);
        let waited = (self.changed).wait_timeout_while(next, IDLE_MAX, is_empty);
        let (mut next, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *next) {
            Next::Work(work) => Some(work),
            Next::Nothing | Next::Closed => {
                *next = Next::Closed;
                None
            }
        }
    }
}

/// Enough for a thread that makes a few system calls and sends messages.
const STACK_BYTES: usize = 65_536;

/// How long a helper without work waits for some.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// What the caller that waits for a helper is told.
enum Word {
    /// The byte was released, or the wait for it failed.
    Ended(io::Result<()>),
    /// The wait was cancelled.
    Called,
}

fn ended_early() -> io::Error {
    io::Error::other("the waiting thread ended early")
}

impl Work {
    fn new(file: BorrowedDescriptor<'_>, lock: ByteLock) -> io::Result<Self> {
        let file = os::reopen(file, lock.mode == Mode::Exclusive)?;
        Ok(Self { lock, file })
    }
}

impl Helper {
    /// A new thread that sleeps on this.
    fn start(first: Work, of: Sought) -> io::Result<Self> {
        let (done, words) = mpsc::channel();
        let caller = done.clone();
        let desk = Arc::new(Desk::default());
        let own = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("tenure-wait".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut next = Some(first);
                while let Some(work) = next {
                    // The caller may have left. Its next wait starts another thread then.
                    if done
                        .send(Word::Ended(work.lock.sleep(os::borrow(&work.file))))
                        .is_err()
                    {
                        return;
                    }
                    drop(work);
                    next = own.take();
                }
            })?;
        Ok(Self {
            of: Some(of),
            words,
            caller,
            desk,
            pid: std::process::id(),
        })
    }

    /// The same thread, which has nothing to do, or a new one if it has ended; it sleeps on this.
    fn again(self, file: BorrowedDescriptor<'_>, of: Sought) -> io::Result<Self> {
        match self.desk.leave(Work::new(file, of.lock)?) {
            Some(work) => Self::start(work, of),
            None => Ok(Self {
                of: Some(of),
                ..self
            }),
        }
    }

    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Helper {
    /// Waits for the helper and for a wake-up alike: it naps on the wake-up and looks at the helper
    /// between naps. So it answers a wake-up at once, and the end of the claim before within
    /// [`WAKE_UP_NAP`].
    fn wait_for_wake_up(
        mut self,
        wake_up: BorrowedDescriptor<'_>,
        until: Option<Instant>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Wake> {
        loop {
            match self.words.try_recv() {
                Ok(Word::Ended(result)) => {
                    self.of = None;
                    PARKED.set(Some(self));
                    return result.map(|()| Wake::Ready);
                }
                Err(mpsc::TryRecvError::Disconnected) => return Err(ended_early()),
                Ok(Word::Called) | Err(mpsc::TryRecvError::Empty) => {}
            }
            if is_cancelled() {
                PARKED.set(Some(self));
                return Ok(Wake::Interrupted);
            }
            let wake = match poll(&[wake_up], WAKE_UP_NAP, until)? {
                Polled::NapIsOver => continue,
                Polled::Readable => Wake::Ready,
                Polled::Expired => Wake::Expired,
            };
            PARKED.set(Some(self));
            return Ok(wake);
        }
    }
}

/// How long one nap of a sleep without signals lasts at most, if a wake-up can also end the sleep.
const WAKE_UP_NAP: Duration = Duration::from_millis(5);

/// A shorter nap ends by the monotonic clock, so after a suspend of the machine a caller may look this
/// much too late.
const ALARM_MIN: Duration = Duration::from_secs(1);

/// Waits until one of the descriptors is readable, `nap` is over (which counts as ready), or `until` has
/// come. A signal handler that runs meanwhile counts as ready too.
///
/// A nap is for what others may do in that time. A lease runs out while the machine sleeps, and the nap
/// ends then too. `until` is the caller's patience, and stands still with the machine.
///
/// # Errors
/// - Whatever the system answers.
pub fn poll_readable(
    fds: &[BorrowedDescriptor<'_>],
    nap: Duration,
    until: Option<Instant>,
) -> io::Result<Wake> {
    Ok(match poll(fds, nap, until)? {
        Polled::Readable | Polled::NapIsOver => Wake::Ready,
        Polled::Expired => Wake::Expired,
    })
}

/// How a sleep on descriptors ended.
enum Polled {
    /// One of them is readable, a signal handler ran, or the alarm of a long nap went off.
    Readable,
    NapIsOver,
    /// The caller's patience is over.
    Expired,
}

fn poll(
    fds: &[BorrowedDescriptor<'_>],
    nap: Duration,
    until: Option<Instant>,
) -> io::Result<Polled> {
    let rest = until.map(|until| until.saturating_duration_since(instant()));
    let timeout = rest.map_or(nap, |rest| rest.min(nap));
    let alarm = (timeout >= ALARM_MIN).then(|| os::alarm(nap)).flatten();
    let polled = match &alarm {
        None => os::poll(fds, timeout),
        Some(alarm) => os::poll(&[fds, &[os::borrow(alarm)]].concat(), timeout),
    };
    match polled {
        Ok(false) if rest.is_some_and(|rest| rest <= nap) => Ok(Polled::Expired),
        Ok(false) => Ok(Polled::NapIsOver),
        Ok(true) | Err(Errno::INTR) => Ok(Polled::Readable),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::{Cancel, listening};
    use crate::clock::since;
    use crate::os::borrow;
    use std::fs::File;

    const BYTE: Byte = Byte::GUARD;

    /// No test can put the machine to sleep. So this one asks the kernel by which clock an alarm goes
    /// off.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_nap_ends_by_the_clock_that_goes_on_while_the_machine_sleeps() {
        use std::os::fd::AsRawFd;
        let alarm = os::alarm(Duration::from_millis(20)).expect("an alarm");
        let facts = format!("/proc/self/fdinfo/{}", alarm.as_raw_fd());
        let facts = std::fs::read_to_string(facts).expect("an open file");
        assert!(facts.lines().any(|line| line == "clockid: 7"), "{facts}");
        let rung = os::poll(&[borrow(&alarm)], Duration::from_secs(20));
        assert_eq!(rung, Ok(true), "it goes off by itself");
        let began = instant();
        let nap = ALARM_MIN;
        let wake = poll_readable(&[], nap, Some(began + 20 * nap)).expect("a nap");
        assert_eq!(wake, Wake::Ready, "the end of a nap wakes it");
        let took = since(began);
        assert!(nap <= took && took < 10 * nap, "{took:?}");
    }

    /// The alarm of a long nap goes by that clock.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_long_nap_has_an_alarm() {
        let has_alarm = || {
            let open = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
            let mut targets = open.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
            targets.any(|target| target.to_string_lossy().contains("timerfd"))
        };
        let (hears, calls) = os::bell().expect("a bell");
        std::thread::scope(|threads| {
            let naps = threads.spawn(|| poll_readable(&[hears.descriptor()], LATE, None));
            let mut seen = false;
            while !seen && !naps.is_finished() {
                seen = has_alarm();
            }
            calls.ring();
            let wake = naps.join().expect("no panic");
            assert_eq!(wake.expect("a nap"), Wake::Ready);
            assert!(seen, "it had none");
        });
    }

    #[test]
    fn each_pause_is_longer_than_the_one_before_up_to_the_longest() {
        let pauses = std::iter::successors(Some(PAUSE_MIN), |pause| Some(longer(*pause)));
        let pauses: Vec<Duration> = pauses.take(10).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&PAUSE_MAX), "{pauses:?}");
    }

    const EXCLUSIVE: ByteLock = ByteLock {
        byte: BYTE,
        mode: Mode::Exclusive,
    };

    const SHARED: ByteLock = ByteLock {
        byte: BYTE,
        mode: Mode::Shared,
    };

    /// Short for a test, and longer than any pause between two looks.
    const SOON: Duration = Duration::from_millis(40);

    /// Longer than any of these tests takes.
    const LATE: Duration = Duration::from_secs(10);

    /// A file whose byte another open file has, and that open file.
    fn taken() -> (File, File) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let [ours, owner] = [(); 2].map(|()| file.reopen().expect("an open file of its own"));
        assert!(EXCLUSIVE.try_take(borrow(&owner)).expect("an answer"));
        (ours, owner)
    }

    /// How a sleep ended, and how long it took.
    fn timed(sleep: impl FnOnce() -> io::Result<Wake>) -> (Wake, Duration) {
        let began = instant();
        (sleep().expect("a sleep"), since(began))
    }

    #[test]
    fn a_byte_that_stays_taken_is_waited_for_as_long_as_patience_lasts() {
        let (ours, _owner) = taken();
        let (wake, took) = timed(|| ThreadSleeper.lock(borrow(&ours), EXCLUSIVE, SOON));
        assert_eq!(wake, Wake::Expired);
        assert!(took >= SOON && took < LATE, "{took:?}");
    }

    #[test]
    fn a_byte_that_is_let_go_is_taken_and_kept_by_who_locks_and_left_by_who_passes() {
        for (lock, is_kept) in [(EXCLUSIVE, true), (EXCLUSIVE, false), (SHARED, false)] {
            let (ours, owner) = taken();
            let (wake, took) = std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(SOON);
                    EXCLUSIVE.give_back(borrow(&owner)).expect("it is let go");
                });
                let until = instant().checked_add(LATE);
                timed(|| {
                    if is_kept {
                        ThreadSleeper.lock(borrow(&ours), lock, LATE)
                    } else {
                        ThreadSleeper.pass(borrow(&ours), lock, until, None)
                    }
                })
            });
            assert_eq!(wake, Wake::Ready, "{lock:?}, {is_kept}");
            assert!(took < LATE, "{lock:?}, {is_kept}: {took:?}");
            let is_free = EXCLUSIVE.try_take(borrow(&owner)).expect("an answer");
            assert_eq!(is_free, !is_kept, "{lock:?}");
        }
    }

    #[test]
    fn a_wait_is_cancelled_at_once_with_and_without_a_deadline_and_a_wake_up() {
        // Kept to the end: the helper of a wait ends with its byte, and the next file might get the same
        // inode.
        let mut owners = Vec::new();
        for (until, can_be_woken) in [(None, false), (Some(LATE), false), (Some(LATE), true)] {
            let (ours, owner) = taken();
            owners.push(owner);
            let (hears, _calls) = os::bell().expect("a bell");
            let cancel = Cancel::new();
            let (wake, took) = std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(SOON);
                    cancel.cancel();
                });
                let wake_up = can_be_woken.then(|| hears.descriptor());
                let until = until.and_then(|until| instant().checked_add(until));
                timed(|| {
                    listening(Some(&cancel), || {
                        ThreadSleeper.pass(borrow(&ours), SHARED, until, wake_up)
                    })
                })
            });
            assert_eq!(wake, Wake::Interrupted, "{until:?}, {can_be_woken}");
            assert!(took < LATE / 2, "{until:?}, {can_be_woken}: {took:?}");
        }
    }

    #[test]
    fn a_call_that_came_for_an_earlier_wait_of_the_thread_ends_no_later_one() {
        let (ours, _owner) = taken();
        let file = borrow(&ours);
        let work = Work::new(file, SHARED).expect("an open file");
        let helper = Helper::start(work, Sought::of(file, SHARED).expect("its facts"));
        let helper = helper.expect("a helper");
        helper.caller.send(Word::Called).expect("a listener");
        PARKED.set(Some(helper));
        let until = instant().checked_add(SOON);
        let (wake, took) = timed(|| ThreadSleeper.pass(file, SHARED, until, None));
        assert_eq!(wake, Wake::Expired);
        assert!(took >= SOON, "{took:?}");
    }

    #[test]
    fn a_helper_that_has_nothing_to_do_takes_the_next_wait() {
        let free = tempfile::NamedTempFile::new().expect("a temporary file");
        let file = borrow(free.as_file());
        let work = Work::new(file, SHARED).expect("an open file");
        let helper = Helper::start(work, Sought::of(file, SHARED).expect("its facts"));
        let mut helper = helper.expect("a helper");
        assert!(matches!(helper.words.recv(), Ok(Word::Ended(Ok(())))));
        helper.of = None;
        let desk = Arc::clone(&helper.desk);
        PARKED.set(Some(helper));
        let (ours, _owner) = taken();
        let until = instant().checked_add(SOON);
        let (wake, _) = timed(|| ThreadSleeper.pass(borrow(&ours), SHARED, until, None));
        assert_eq!(wake, Wake::Expired);
        let parked = PARKED.take().expect("it sleeps on");
        // On a machine that stands still for long, it has ended meanwhile.
        let has_ended = matches!(*locked(&desk.next), Next::Closed);
        assert!(Arc::ptr_eq(&parked.desk, &desk) || has_ended);
    }

    /// A fork copies what a thread has, and not its helper.
    #[test]
    fn the_helper_of_the_process_of_which_this_one_is_a_copy_is_not_asked() {
        let (ours, _owner) = taken();
        let file = borrow(&ours);
        let of = Sought::of(file, SHARED).expect("its facts");
        let helper = Helper::start(Work::new(file, SHARED).expect("an open file"), of);
        let mut helper = helper.expect("a helper");
        helper.pid += 1;
        // What it would tell, were it asked.
        helper.caller.send(Word::Ended(Ok(()))).expect("a listener");
        PARKED.set(Some(helper));
        let until = instant().checked_add(SOON);
        let (wake, _) = timed(|| ThreadSleeper.pass(file, SHARED, until, None));
        assert_eq!(wake, Wake::Expired, "the byte is taken");
    }

    /// A helper that has worked before may still sleep on the byte of the wait that expired.
    #[test]
    fn a_wait_behind_one_that_expired_ends_with_its_own_byte() {
        let pass = |ours: &File, length| {
            let until = instant().checked_add(length);
            let wake = ThreadSleeper.pass(borrow(ours), SHARED, until, None);
            wake.expect("a sleep")
        };
        let until_it_is_let_go = || {
            let (ours, owner) = taken();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(SOON);
                    EXCLUSIVE.give_back(borrow(&owner)).expect("it is let go");
                });
                pass(&ours, LATE)
            })
        };
        assert_eq!(until_it_is_let_go(), Wake::Ready);
        let (stays, _owner) = taken();
        assert_eq!(pass(&stays, SOON), Wake::Expired);
        assert_eq!(until_it_is_let_go(), Wake::Ready);
    }

    #[test]
    fn a_wake_up_ends_a_wait_and_its_deadline_does_and_neither_before() {
        let (ours, _owner) = taken();
        let (hears, calls) = os::bell().expect("a bell");
        let pass = |length| {
            let until = instant().checked_add(length);
            let wake_up = Some(hears.descriptor());
            timed(|| ThreadSleeper.pass(borrow(&ours), SHARED, until, wake_up))
        };
        let (wake, took) = pass(SOON);
        assert_eq!(wake, Wake::Expired);
        assert!(took >= SOON && took < LATE / 2, "{took:?}");
        let (wake, took) = std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(SOON);
                calls.ring();
            });
            pass(LATE)
        });
        assert_eq!(wake, Wake::Ready);
        assert!(took < LATE / 2, "{took:?}");
    }

    #[test]
    fn the_end_of_a_nap_is_ready_and_that_of_the_wait_is_none() {
        let now = instant();
        for (nap, until, expected) in [
            (SOON, None, Wake::Ready),
            (SOON, Some(LATE), Wake::Ready),
            (LATE, Some(SOON), Wake::Expired),
            (LATE, Some(Duration::ZERO), Wake::Expired),
        ] {
            let until = until.and_then(|until| now.checked_add(until));
            let (wake, took) = timed(|| poll_readable(&[], nap, until));
            assert_eq!(wake, expected, "{nap:?}, {until:?}");
            assert!(took < LATE / 2, "{nap:?}, {until:?}: {took:?}");
        }
        let (hears, calls) = os::bell().expect("a bell");
        calls.ring();
        let until = instant().checked_add(LATE);
        let (wake, took) = timed(|| poll_readable(&[hears.descriptor()], LATE, until));
        assert_eq!(wake, Wake::Ready);
        assert!(took < LATE / 2, "{took:?}");
    }
}
