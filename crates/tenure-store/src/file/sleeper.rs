//! How a thread sleeps in the kernel until a byte is released or a descriptor becomes readable.
//!
//! A command owns its process and can have a timer signal interrupt a sleeping system call. The library
//! cannot, and lets a helper thread sleep in the callers' place ([`ThreadSleeper`]).

use super::bytes::{self, Byte, Mode};
use crate::Wake;
use crate::contract::Ring;
use crate::sync::locked;
use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tenure_os::cancel::{self, Cancel};
use tenure_os::clock::{instant, nap, rest_until, since};
use tenure_os::os::{self, Bell, BorrowedDescriptor, Descriptor, Errno};

/// A byte, and the mode in which to lock it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// Has `ring` called once a byte can be taken, for as long as the answer is kept. `None` for a sleeper that knows no
    /// sleep but that of the caller's thread.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn park(
        &self,
        _file: BorrowedDescriptor<'_>,
        _lock: ByteLock,
        _ring: &Ring,
    ) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }

    /// Has `ring` called once one of the descriptors is readable, for as long as the answer is kept. `None` for a sleeper that
    /// knows no sleep but that of the caller's thread.
    ///
    /// # Errors
    /// - Whatever the system answers.
    fn park_on(
        &self,
        _fds: Vec<Descriptor>,
        _ring: &Ring,
    ) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }

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

/// Sleeps without signals: a helper thread blocks in the kernel, and the callers wait for the thread.
///
/// No call of any system waits for a byte and for a cancel at once, and nothing ends a helper's sleep before the byte is
/// released. So there is **one helper for each byte**, whoever comes and goes: a program that asks again and again for a
/// lock that is held has one thread and one open file more for it. The helper gives the byte back at once. It sleeps
/// *shared* on another claim's byte, so it never blocks another caller. Where the system can open a file once more, it has
/// an open file of its own, so that it keeps no liveness lock of a caller held.
///
/// A helper that has nothing to do waits a little for the next sleep. A caller that loops would else start a thread for
/// each wait.
///
/// A [`tenure_os::cancel::Cancel`] that reaches a wait ends it at once.
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
        // Mostly a byte that is free by now needs no helper.
        if lock.try_take(file)? {
            lock.give_back(file)?;
            return Ok(Wake::Ready);
        }
        if until.is_some_and(|until| rest_until(until).is_none()) {
            return Ok(Wake::Expired);
        }
        Helpers::here().pass(file, lock, until, wake_up)
    }

    fn park(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        ring: &Ring,
    ) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let told = WaitNotice::new(Some(Arc::clone(ring)));
        if lock.try_take(file)? {
            lock.give_back(file)?;
            ring();
        } else {
            Helpers::here().tell(file, lock, &told)?;
        }
        Ok(Some(Box::new(told)))
    }

    #[cfg(target_os = "linux")]
    fn park_on(
        &self,
        fds: Vec<Descriptor>,
        ring: &Ring,
    ) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let awaited = Readable::here()?.add(fds, ring)?;
        Ok(Some(Box::new(awaited)))
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
        let _bell = cancel::rings(&cancel, move || calls.ring());
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

/// What a wait without a thread wants to be told of. The wait has it, and closes what it opened: that may take the kernel
/// long, and must keep no other wait.
#[cfg(target_os = "linux")]
struct DescriptorWait {
    fds: Vec<Descriptor>,
    ring: Ring,
    number: u64,
    readable: Arc<Readable>,
}

#[cfg(target_os = "linux")]
impl Drop for DescriptorWait {
    fn drop(&mut self) {
        // In a copy made by a fork, the kernel's list is that of the first process, and the mutex perhaps locked for ever.
        if self.readable.pid != std::process::id() {
            return;
        }
        locked(&self.readable.state).all.remove(&self.number);
        // Such a copy may have them open, so that closing them here removes none.
        for fd in &self.fds {
            let _ = rustix::event::epoll::delete(&self.readable.epoll, fd);
        }
    }
}

/// A thread that waits for the descriptors of all waits of a process that have none. It ends some time after the last
/// of them.
#[cfg(target_os = "linux")]
struct Readable {
    pid: u32,
    epoll: Descriptor,
    state: Mutex<Waited>,
}

#[cfg(target_os = "linux")]
#[derive(Default)]
struct Waited {
    all: HashMap<u64, Weak<DescriptorWait>>,
    next: u64,
    /// Whether there is the thread.
    attends: bool,
}

#[cfg(target_os = "linux")]
impl Readable {
    /// The thread of this process; a copy that a fork made has no threads, and shares what the kernel keeps.
    fn here() -> io::Result<Arc<Self>> {
        static HERE: OnceLock<Arc<Readable>> = OnceLock::new();
        let own = std::process::id();
        if let Some(readable) = HERE.get().filter(|readable| readable.pid == own) {
            return Ok(Arc::clone(readable));
        }
        let readable = Arc::new(Self {
            pid: own,
            epoll: rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?,
            state: Mutex::default(),
        });
        // Of two that come at once, the second one uses what the first one made.
        let here = HERE.get_or_init(|| Arc::clone(&readable));
        Ok(if here.pid == own {
            Arc::clone(here)
        } else {
            readable
        })
    }

    /// Has a wait told once, when one of its descriptors is readable.
    fn add(self: &Arc<Self>, fds: Vec<Descriptor>, ring: &Ring) -> io::Result<Arc<DescriptorWait>> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        let mut state = locked(&self.state);
        if !state.attends {
            let readable = Arc::clone(self);
            let thread = std::thread::Builder::new().name("tenure-watch".to_owned());
            let thread = thread.stack_size(STACK_BYTES);
            thread.spawn(move || readable.attend())?;
            state.attends = true;
        }
        let number = state.next;
        state.next += 1;
        let awaited = Arc::new(DescriptorWait {
            fds,
            ring: Arc::clone(ring),
            number,
            readable: Arc::clone(self),
        });
        state.all.insert(number, Arc::downgrade(&awaited));
        // What goes wrong from here on drops it, which takes the mutex.
        drop(state);
        for fd in &awaited.fds {
            let (data, flags) = (
                EventData::new_u64(number),
                EventFlags::IN | EventFlags::ONESHOT,
            );
            add(&self.epoll, fd, data, flags)?;
        }
        Ok(awaited)
    }

    /// Rings for what can be read, until nobody has waited for a while.
    fn attend(&self) {
        use rustix::event::epoll::{Event, EventData, EventFlags, wait};
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [none; 64];
        let idle = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        loop {
            let count = match wait(&self.epoll, &mut events, Some(&idle)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                // Out of memory, say. Each wait looks again by itself.
                Err(_) => {
                    nap(POLL[0]);
                    0
                }
            };
            let mut state = locked(&self.state);
            if count == 0 && state.all.is_empty() {
                state.attends = false;
                return;
            }
            let events = events.iter().take(count);
            let told = events.filter_map(|event| state.all.get(&event.data.u64())?.upgrade());
            let told: Vec<Arc<DescriptorWait>> = told.collect();
            // A wait that is let go of here takes the mutex.
            drop(state);
            for awaited in told {
                (awaited.ring)();
            }
        }
    }
}

/// What a helper sleeps on: a byte of a file. A file keeps its inode while the helper has it open, and a
/// ticket belongs to one place for good. Only a caller that comes back to a reserved place takes a
/// released byte again. A waiter whose helper saw the earlier release then looks once for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sought {
    inode: (u64, u64),
    lock: ByteLock,
}

/// The threads of a process that sleep in the kernel in their callers' place.
#[derive(Default)]
struct Helpers {
    state: Mutex<Sleepers>,
    /// Notified where there is work for an idle helper.
    has_work: Condvar,
}

#[derive(Default)]
struct Sleepers {
    /// The waits that each of them tells.
    told: HashMap<Sought, Vec<Weak<WaitNotice>>>,
    work: Vec<HelperWork>,
    /// The bytes for which there was no helper. One thread looks at them in turns.
    polled: Vec<HelperWork>,
    /// Whether there is that thread.
    polls: bool,
    helpers: usize,
    /// How many helpers have nothing to do, without those for which there is work.
    idle: usize,
}

/// A byte to sleep on, and an open file of the helper's own.
struct HelperWork {
    of: Sought,
    file: Descriptor,
}

/// What a wait is told.
struct WaitNotice {
    /// The byte was released, or the number of the error with which the sleep ended.
    ended: Mutex<Option<Result<(), i32>>>,
    changed: Condvar,
    /// For a wait that also looks at a descriptor, or has no thread.
    rings: Option<Ring>,
}

impl WaitNotice {
    fn new(rings: Option<Ring>) -> Arc<Self> {
        Arc::new(Self {
            ended: Mutex::new(None),
            changed: Condvar::new(),
            rings,
        })
    }

    /// Wakes the wait. It looks at what woke it under the mutex, so it cannot fall asleep past this.
    fn wake(&self) {
        drop(locked(&self.ended));
        self.changed.notify_all();
        if let Some(rings) = &self.rings {
            rings();
        }
    }
}

/// Enough for a thread that makes a few system calls and rings.
const STACK_BYTES: usize = 65_536;

/// How many helpers there are at most. Bytes beyond that are looked at in turns.
const HELPERS_MAX: usize = 64;

/// The pause between two such rounds, at least and at most. Between these it is so many times as long as a round takes.
const POLL: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];
const POLL_SHARE: u32 = 10;

/// How long a helper without work waits for some.
const IDLE_MAX: Duration = Duration::from_secs(1);

impl Helpers {
    /// The helpers of this process. A copy that a fork made has no threads, and perhaps a mutex that stays locked, so
    /// each wait there has helpers of its own.
    fn here() -> Arc<Self> {
        static HERE: OnceLock<(u32, Arc<Helpers>)> = OnceLock::new();
        let own = std::process::id();
        let (pid, helpers) = HERE.get_or_init(|| (own, Arc::default()));
        if *pid == own {
            Arc::clone(helpers)
        } else {
            Arc::default()
        }
    }

    /// Sleeps until the byte is released, until then, or until a wake-up or a cancel.
    fn pass(
        self: &Arc<Self>,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        wake_up: Option<BorrowedDescriptor<'_>>,
    ) -> io::Result<Wake> {
        let (bell, rings) = match wake_up {
            Some(_) => Some(os::bell()?).unzip(),
            None => (None, None),
        };
        let told = WaitNotice::new(rings.map(|rings| -> Ring { Arc::new(move || rings.ring()) }));
        let cancel = cancel::heard();
        let _bell = cancel.as_ref().map(|cancel| {
            let told = Arc::clone(&told);
            cancel::rings(cancel, move || told.wake())
        });
        self.tell(file, lock, &told)?;
        loop {
            let ended = locked(&told.ended);
            if cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Ok(Wake::Interrupted);
            }
            match *ended {
                Some(Ok(())) => return Ok(Wake::Ready),
                Some(Err(number)) => return Err(io::Error::from_raw_os_error(number)),
                None => {}
            }
            let rest = match until {
                Some(until) => match rest_until(until) {
                    None => return Ok(Wake::Expired),
                    rest => rest,
                },
                None => None,
            };
            match (&bell, wake_up, rest) {
                (Some(bell), Some(wake_up), _) => {
                    drop(ended);
                    if is_called(bell, wake_up, rest)? {
                        return Ok(Wake::Ready);
                    }
                }
                (_, _, Some(rest)) => drop(told.changed.wait_timeout(ended, rest)),
                (_, _, None) => drop(told.changed.wait(ended)),
            }
        }
    }

    /// Has the end of a byte told to a wait.
    fn tell(
        self: &Arc<Self>,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        told: &Arc<WaitNotice>,
    ) -> io::Result<()> {
        let inode = os::facts(file)?.inode();
        let of = Sought { inode, lock };
        let mut asleep = locked(&self.state);
        if let Some(known) = asleep.told.get_mut(&of) {
            known.retain(|told| told.strong_count() > 0);
            known.push(Arc::downgrade(told));
            return Ok(());
        }
        let work = HelperWork {
            of,
            file: os::reopen(file, lock.mode == Mode::Exclusive)?,
        };
        if asleep.idle > 0 {
            asleep.idle -= 1;
            asleep.work.push(work);
            self.has_work.notify_one();
        } else if asleep.helpers < HELPERS_MAX {
            self.start(move |helpers| helpers.help(work))?;
            asleep.helpers += 1;
        } else {
            if !asleep.polls {
                self.start(Self::poll)?;
                asleep.polls = true;
            }
            asleep.polled.push(work);
        }
        asleep.told.insert(of, vec![Arc::downgrade(told)]);
        Ok(())
    }

    fn start(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) -> io::Result<()> {
        let helpers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tenure-wait".to_owned());
        let thread = thread.stack_size(STACK_BYTES);
        thread.spawn(move || work(&helpers)).map(drop)
    }

    /// What the thread does that looks at the bytes without a helper. It takes a small share of a processor, however many
    /// they are.
    fn poll(&self) {
        loop {
            let looked = instant();
            let bytes = std::mem::take(&mut locked(&self.state).polled);
            for HelperWork { of, file } in bytes {
                let free = of.lock.try_take(os::borrow(&file));
                let free = free.and_then(|free| {
                    if free {
                        of.lock.give_back(os::borrow(&file))?;
                    }
                    Ok(free)
                });
                let mut asleep = locked(&self.state);
                let is_wanted = (asleep.told.get(&of))
                    .is_some_and(|told| told.iter().any(|told| told.strong_count() > 0));
                if matches!(free, Ok(false)) && is_wanted {
                    asleep.polled.push(HelperWork { of, file });
                    continue;
                }
                let told = asleep.told.remove(&of);
                drop(asleep);
                Self::tell_all(&told.unwrap_or_default(), free.map(drop));
            }
            let mut asleep = locked(&self.state);
            if asleep.polled.is_empty() {
                asleep.polls = false;
                return;
            }
            drop(asleep);
            nap((since(looked) * POLL_SHARE).clamp(POLL[0], POLL[1]));
        }
    }

    /// Tells the waits for a byte that it was released, or how the sleep ended.
    fn tell_all(told: &[Weak<WaitNotice>], ended: io::Result<()>) {
        let ended = ended.map_err(|error| error.raw_os_error().unwrap_or_default());
        for told in told.iter().filter_map(Weak::upgrade) {
            *locked(&told.ended) = Some(ended);
            told.wake();
        }
    }

    /// What a helper does.
    fn help(&self, first: HelperWork) {
        let mut next = Some(first);
        while let Some(HelperWork { of, file }) = next {
            let ended = of.lock.sleep(os::borrow(&file));
            drop(file);
            let mut asleep = locked(&self.state);
            // A wait that comes now has another sleep. Before the waits are told: what they do next may be work again.
            let told = asleep.told.remove(&of);
            asleep.idle += 1;
            drop(asleep);
            Self::tell_all(&told.unwrap_or_default(), ended);
            next = self.more();
        }
    }

    /// The next work of a helper that is idle. `None` if none came within [`IDLE_MAX`].
    fn more(&self) -> Option<HelperWork> {
        let asleep = locked(&self.state);
        let is_idle = |asleep: &mut Sleepers| asleep.work.is_empty() && asleep.polled.is_empty();
        let waited = (self.has_work).wait_timeout_while(asleep, IDLE_MAX, is_idle);
        let (mut asleep, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = asleep.work.pop() {
            return Some(work);
        }
        asleep.idle -= 1;
        let polled = asleep.polled.pop();
        asleep.helpers -= usize::from(polled.is_none());
        polled
    }
}

/// Sleeps until the bell rings or the sleep times out. True if the descriptor became readable: the store reads why.
fn is_called(
    bell: &Bell,
    wake_up: BorrowedDescriptor<'_>,
    rest: Option<Duration>,
) -> io::Result<bool> {
    match os::poll(&[bell.descriptor(), wake_up], rest.unwrap_or(CALL_MAX)) {
        Ok(_) => {
            bell.hear();
            Ok(os::poll(&[wake_up], Duration::ZERO)?)
        }
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// How long a sleep on descriptors lasts at most where nobody said how long. It begins anew then.
const CALL_MAX: Duration = Duration::from_secs(3_600);

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
    /// A descriptor is readable, a signal handler ran, or the alarm of a long nap went off.
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
    use std::fs::File;
    use tenure_os::cancel::listening;
    use tenure_os::clock::since;
    use tenure_os::os::borrow;

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

    /// Leader election by polling: each wait ends long before the byte does. Callers with and without a wake-up come and
    /// go, from one thread and from many.
    #[test]
    fn waits_that_come_and_go_have_one_helper_for_each_byte() {
        let helpers = Arc::new(Helpers::default());
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task");
            tasks.map_or(0, Iterator::count)
        };
        let (ours, owner) = taken();
        let (hears, _calls) = os::bell().expect("a bell");
        let pass = |length, can_be_woken: bool| {
            let until = instant().checked_add(length);
            let wake_up = can_be_woken.then(|| hears.descriptor());
            helpers
                .pass(borrow(&ours), SHARED, until, wake_up)
                .expect("a sleep")
        };
        let before = threads();
        for tick in 0..2_000 {
            let wake = pass(Duration::from_micros(200), tick % 5 == 0);
            assert_eq!(wake, Wake::Expired);
        }
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| assert_eq!(pass(SOON, false), Wake::Expired));
            }
        });
        assert_eq!(locked(&helpers.state).told.len(), 1);
        assert!(
            threads() <= before + 10,
            "{} threads, {before} before",
            threads()
        );
        // Waits that are under way when the byte is released are told, each of them.
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..4)
                .map(|number| scope.spawn(move || pass(LATE, number % 2 == 0)))
                .collect();
            std::thread::sleep(SOON);
            EXCLUSIVE.give_back(borrow(&owner)).expect("it is let go");
            for wait in waits {
                assert_eq!(wait.join().expect("no panic"), Wake::Ready);
            }
        });
        assert!(locked(&helpers.state).told.is_empty(), "nobody is left");
    }

    /// More bytes than helpers, for waits with and without a thread. Those that are given up are not looked at any longer.
    #[test]
    fn many_bytes_have_a_bounded_number_of_threads() {
        let helpers = Arc::new(Helpers::default());
        let files: Vec<_> = (0..HELPERS_MAX + 40).map(|_| taken()).collect();
        let (tells, told) = std::sync::mpsc::channel();
        let mut waits: Vec<_> = (files.iter().enumerate())
            .map(|(number, (ours, _))| {
                let tells = tells.clone();
                let rings = move || {
                    let _ = tells.send(number);
                };
                let wait = WaitNotice::new(Some(Arc::new(rings)));
                helpers.tell(borrow(ours), SHARED, &wait).expect("a wait");
                wait
            })
            .collect();
        let counted = |asleep: &Sleepers| (asleep.helpers, asleep.polls);
        assert_eq!(counted(&locked(&helpers.state)), (HELPERS_MAX, true));
        assert!(told.recv_timeout(SOON).is_err(), "all of them wait");
        // The last ten are given up; the others are told, whoever looks at their bytes.
        let given_up = waits.split_off(files.len() - 10);
        drop(given_up);
        for (_, owner) in &files {
            EXCLUSIVE.give_back(borrow(owner)).expect("it is let go");
        }
        let mut seen: Vec<_> = (waits.iter())
            .map(|_| told.recv_timeout(LATE).expect("it is told"))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..waits.len()).collect::<Vec<_>>());
        let end = instant() + LATE;
        while counted(&locked(&helpers.state)) != (0, false) {
            assert!(instant() < end, "they end");
            nap(SOON);
        }
        assert!(locked(&helpers.state).told.is_empty(), "nobody is left");
    }

    #[test]
    fn a_helper_that_has_nothing_to_do_takes_the_next_wait_and_ends_without_one() {
        let helpers = Arc::new(Helpers::default());
        for _ in 0..3 {
            let (ours, owner) = taken();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(SOON);
                    EXCLUSIVE.give_back(borrow(&owner)).expect("it is let go");
                });
                let until = instant().checked_add(LATE);
                let wake = helpers.pass(borrow(&ours), SHARED, until, None);
                assert_eq!(wake.expect("a sleep"), Wake::Ready);
            });
            // At most one, unless this machine stood still for long.
            assert!(locked(&helpers.state).idle <= 1);
        }
        let end = instant() + LATE;
        while locked(&helpers.state).idle > 0 {
            assert!(instant() < end, "it ends");
            nap(SOON);
        }
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
