//! How a waiter sleeps, and how a holder learns that something happened to its claim.
//!
//! A waiter sleeps in the kernel on the byte of the claim before it, which the kernel releases when that
//! claim's process ends. If that claim has no such byte, the waiter sleeps on the owner's process, its
//! lease, and the file. The [`Sleeper`] decides how a thread of this process sleeps at all.
//!
//! [`Sleeper`]: super::Sleeper

use super::bytes::{Byte, Mode};
use super::folder::{Access, Opened, fault, io_fault};
use super::handle::{FileHandle, WakeUp};
use super::names::Names;
use super::sleeper::ByteLock;
use super::{BorrowedDescriptor, FileStore, fd};
use crate::contract::{About, Ask, Depth, Notices, Parked, Ring, Step, Store, Waiting};
use crate::profile::{FUTURE, UNDATED};
use crate::{StoreError, Wake};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tenure_core::{Claim, LivenessLock, Now, Predecessor, Standing, judge};
use tenure_os::cancel::{self, Cancel};
use tenure_os::clock::{instant, rest_until};
use tenure_os::os::{self, Descriptor, Watch, WatchFor};
use tenure_os::process;

/// How long a sleep behind a record lasts at most before the waiter looks at the record again.
const RECORD_NAP_MAX: Duration = Duration::from_secs(1);

/// How long it lasts at least, so that an unchanged state never makes a waiter spin.
const RECORD_NAP_MIN: Duration = Duration::from_millis(100);

/// How long a waiter that can be asked to stop sleeps where nothing can be watched.
const WAKE_UP_NAP: Duration = Duration::from_millis(50);

/// What a waiter sleeps on.
enum Behind<'a> {
    Byte(Byte),
    Records(&'a [Claim]),
}

impl FileStore {
    /// Sleeps behind a waiter's predecessor.
    pub(super) fn wait_behind(
        &self,
        waiting: &Waiting<'_>,
        handle: Option<&FileHandle>,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let behind = match waiting.behind {
            Predecessor::Still { behind, still } => {
                let over = instant().checked_add(Duration::from_millis(still.rest_ms));
                let first = until.into_iter().chain(over).min();
                let waiting = Waiting { behind, ..*waiting };
                let wake = self.wait_behind(&waiting, handle, first)?;
                return Ok(woken_early(wake, until));
            }
            Predecessor::LivenessLock { ticket } => {
                if let Some(wake) = self.wait_for_own(*ticket, handle, until) {
                    return Ok(wake);
                }
                Behind::Byte(Byte::of_ticket(*ticket))
            }
            Predecessor::Turn { ticket } => Behind::Byte(Byte::of_turn(*ticket)),
            Predecessor::Record(claim) => Behind::Records(std::slice::from_ref(claim)),
            Predecessor::AnyOf(claims) => Behind::Records(claims),
        };
        match (behind, handle) {
            (Behind::Byte(byte), Some(handle)) => self.sleep_on(byte, handle, waiting.now, until),
            (Behind::Byte(byte), None) => self.watch_byte(byte, waiting, until),
            (Behind::Records(claims), Some(FileHandle { names, ticket, .. })) => {
                self.sleep_on_records(names, Some(*ticket), claims, waiting.now, until)
            }
            (Behind::Records(claims), None) => {
                let names = self.names_of(waiting.name);
                self.sleep_on_records(&names, None, claims, waiting.now, until)
            }
        }
    }

    /// Sleeps until a claim of this process ends, where its threads wake each other. `None` if it is no
    /// such claim, or the sleeper may be asked to stop: then it sleeps in the kernel.
    fn wait_for_own(
        &self,
        ticket: u64,
        handle: Option<&FileHandle>,
        until: Option<Instant>,
    ) -> Option<Wake> {
        let handle = handle.filter(|handle| matches!(handle.wake_up, WakeUp::Never))?;
        let awaited = self.ends.as_ref()?.of(&(handle.opened.inode(), ticket))?;
        let cancel = cancel::heard();
        let _bell = cancel.as_ref().map(|it| cancel::rings(it, awaited.bell()));
        let mut gave_up = Wake::Expired;
        let has_ended = awaited.wait(|| {
            if cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                gave_up = Wake::Interrupted;
                return ControlFlow::Break(());
            }
            let Some(until) = until else {
                return ControlFlow::Continue(None);
            };
            match rest_until(until) {
                Some(rest) => ControlFlow::Continue(Some(rest)),
                None => ControlFlow::Break(()),
            }
        });
        Some(if has_ended { Wake::Ready } else { gave_up })
    }

    /// The sleep of [`wait_behind`](Self::wait_behind) without a thread of its own, for a claim that nobody asks to stop while it
    /// waits. `None` where only a thread can sleep.
    pub(super) fn park_behind(
        &self,
        waiting: &Waiting<'_>,
        handle: &FileHandle,
        ring: &Ring,
    ) -> Result<Option<Parked>, StoreError> {
        if !matches!(handle.wake_up, WakeUp::Never) {
            return Ok(None);
        }
        let byte = match waiting.behind {
            Predecessor::Still { behind, still } => {
                let over = instant().checked_add(Duration::from_millis(still.rest_ms));
                let waiting = Waiting { behind, ..*waiting };
                let parked = self.park_behind(&waiting, handle, ring)?;
                return Ok(parked.map(|parked| Parked {
                    until: parked.until.into_iter().chain(over).min(),
                    ..parked
                }));
            }
            Predecessor::LivenessLock { ticket } => {
                let key = (handle.opened.inode(), *ticket);
                if let Some(own) = self.ends.as_ref().and_then(|ends| ends.of(&key)) {
                    let ring = Arc::clone(ring);
                    let listens = Box::new(own.rings(move || ring()));
                    return Ok(Some(Parked {
                        until: None,
                        listens,
                    }));
                }
                Byte::of_ticket(*ticket)
            }
            Predecessor::Turn { ticket } => Byte::of_turn(*ticket),
            Predecessor::Record(claim) => {
                let claims = std::slice::from_ref(&**claim);
                return self.park_on_records(handle, claims, waiting.now, ring);
            }
            Predecessor::AnyOf(claims) => {
                return self.park_on_records(handle, claims, waiting.now, ring);
            }
        };
        let lock = ByteLock {
            byte,
            mode: Mode::Shared,
        };
        let listens = self.sleeper.park(fd(&handle.opened), lock, ring);
        let listens = listens.map_err(|error| self.cannot_wait(error))?;
        Ok(listens.map(|listens| Parked {
            until: None,
            listens,
        }))
    }

    fn cannot_wait(&self, error: std::io::Error) -> StoreError {
        io_fault(&self.path, "waiting for the claim before", error)
    }

    /// Sleeps on a byte for a caller without a claim.
    fn watch_byte(
        &self,
        byte: Byte,
        waiting: &Waiting<'_>,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let names = self.names_of(waiting.name);
        let opened = match self.folder(false)? {
            Some(folder) => folder.open_file(&names.list, Access::Read)?,
            None => None,
        };
        match opened {
            Some(opened) => self.sleep_on_byte(&opened, byte, until, None),
            None => Ok(Wake::Ready),
        }
    }

    /// Sleeps on a byte until its owner releases it, or the sleeper's own claim is asked to stop.
    fn sleep_on(
        &self,
        byte: Byte,
        handle: &FileHandle,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let watch = match &handle.wake_up {
            WakeUp::Never => return self.sleep_on_byte(&handle.opened, byte, until, None),
            WakeUp::Watch(watch) => Some(watch),
            WakeUp::Looks => None,
        };
        // The watch does not report a caller that asked before the watch was there.
        if let Some(watch) = watch
            && watch.get().is_none()
            && self.open_wake_up(handle, watch, now)?
        {
            return Ok(Wake::Ready);
        }
        let Some(watch) = watch.and_then(OnceLock::get) else {
            let look = instant() + WAKE_UP_NAP;
            let first = until.map_or(look, |until| until.min(look));
            let wake = self.sleep_on_byte(&handle.opened, byte, Some(first), None)?;
            return Ok(woken_early(wake, until));
        };
        let wake = self.sleep_on_byte(&handle.opened, byte, until, Some(watch.descriptor()))?;
        watch.settle();
        Ok(wake)
    }

    /// Opens the watch for the touch that tells a waiter to stop. True if there is something to look at
    /// already. It looks under the guard, because the touch comes before the write. Where the system gives no watch (all
    /// instances of this user are in use), the waiter looks again after each pause, and tries again then.
    fn open_wake_up(
        &self,
        handle: &FileHandle,
        watch: &OnceLock<Watch>,
        now: &Now,
    ) -> Result<bool, StoreError> {
        let Ok(wake_up) = self.wake_up_of(&handle.names) else {
            return Ok(false);
        };
        let _ = watch.set(wake_up);
        let ask = Ask::new(&handle.names.name, About::Own(handle), now);
        // A claim that is gone or cannot be understood is worth a look as well.
        let mut worth_a_look = true;
        self.transact(&ask, &mut |draft| {
            worth_a_look = draft.corrupt.is_some() || draft.entry.is_cancelled(handle.ticket);
            Step::Keep
        })?;
        Ok(worth_a_look)
    }

    /// A descriptor that becomes readable once something happened to a claim's list, its file, the
    /// record that is published for it, or their folders. It does not report changes to a folder above
    /// those (`moves`).
    ///
    /// Costs an inotify instance, so it is for work that lasts. The watch of a record ends when the
    /// record is replaced. There is none where nothing can be watched; there a holder looks again from
    /// time to time.
    pub(super) fn notices_of(&self, handle: &FileHandle) -> Option<Notices> {
        handle.lasts.store(true, Ordering::Relaxed);
        let watch = self.watch_of(&handle.names).ok()?;
        Some(Notices {
            descriptor: watch.into_descriptor(),
            ends_with_renewal: self.profile.record().is_some(),
        })
    }

    fn watch_of(&self, names: &Names) -> Result<Watch, StoreError> {
        let list = self.list_path(names);
        let failed = |errno| fault(&list, "watching the lock", errno);
        if self.has_left_root() {
            // A watch begins at a path, which leads elsewhere now.
            return Err(failed(os::Errno::NOENT));
        }
        let watch = Watch::new().map_err(failed)?;
        let on_list = watch.add(&list, WatchFor::Changes);
        // Without these watches, the look from time to time notices it later.
        for folder in [&self.folder, &self.records] {
            if let Some(folder) = folder.get() {
                let _ = watch.add(folder.path(), WatchFor::Moves);
            }
        }
        if self.profile.record().is_none() {
            return on_list.map(|()| watch).map_err(failed);
        }
        // Another program's lock has no list of ours. The look that follows every watch finds what is
        // gone already.
        let on_record = watch.add(&self.record_path(names), WatchFor::Changes);
        on_list.or(on_record).map(|()| watch).map_err(failed)
    }

    /// A descriptor that becomes readable once a waiter is asked to stop: see
    /// [`summon`](super::transact).
    fn wake_up_of(&self, names: &Names) -> Result<Watch, StoreError> {
        let list = self.list_path(names);
        let failed = |errno| fault(&list, "watching the lock", errno);
        if self.has_left_root() {
            return Err(failed(os::Errno::NOENT));
        }
        let watch = Watch::new().map_err(failed)?;
        watch.add(&list, WatchFor::Touches).map_err(failed)?;
        Ok(watch)
    }

    /// Sleeps until an owner releases its byte, and keeps nothing of it.
    fn sleep_on_byte(
        &self,
        opened: &Opened,
        byte: Byte,
        until: Option<Instant>,
        wake_up: Option<BorrowedDescriptor<'_>>,
    ) -> Result<Wake, StoreError> {
        let lock = ByteLock {
            byte,
            mode: Mode::Shared,
        };
        self.sleeper
            .pass(fd(opened), lock, until, wake_up)
            .map_err(|error| self.cannot_wait(error))
    }

    /// Sleeps until a process of one of these claims ends, its lease runs out, or the file changes. It
    /// changes when the sleeper's own claim is asked to stop.
    fn sleep_on_records(
        &self,
        names: &Names,
        own: Option<u64>,
        claims: &[Claim],
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(Tells { fds, nap }) = self.what_tells(names, own, claims, now)? else {
            return Ok(Wake::Ready);
        };
        let fds: Vec<_> = fds.iter().map(os::borrow).collect();
        let woken = self.sleeper.poll(&fds, nap, until);
        woken.map_err(|error| io_fault(&self.shown_path(names), "watching the lock", error))
    }

    /// Sleeps on records without a thread.
    fn park_on_records(
        &self,
        handle: &FileHandle,
        claims: &[Claim],
        now: &Now,
        ring: &Ring,
    ) -> Result<Option<Parked>, StoreError> {
        let names = &handle.names;
        let Some(Tells { fds, nap }) = self.what_tells(names, Some(handle.ticket), claims, now)?
        else {
            ring();
            let listens = Box::new(());
            let until = None;
            return Ok(Some(Parked { until, listens }));
        };
        // Where the system gives no thread or file for it, the caller's thread sleeps.
        let listens = self.sleeper.park_on(fds, ring).ok().flatten();
        let until = instant().checked_add(nap);
        Ok(listens.map(|listens| Parked { until, listens }))
    }

    /// What becomes readable once a sleep behind these claims may end; `None` if it is over.
    fn what_tells(
        &self,
        names: &Names,
        own: Option<u64>,
        claims: &[Claim],
        now: &Now,
    ) -> Result<Option<Tells>, StoreError> {
        // On a system that cannot watch there is none, and the pause has to do for everything.
        let watch = self.watch_of(names).ok();
        // The watch is in place; if a claim changed before that, this look finds it.
        let look = self.look(names, now)?;
        let entry = look.joined.as_ref().ok();
        if own.is_some_and(|own| entry.is_some_and(|entry| entry.is_cancelled(own))) {
            return Ok(None);
        }
        let local = self.is_local();
        let mut processes_open = Vec::new();
        let mut nap = match watch {
            Some(_) => RECORD_NAP_MAX,
            None => RECORD_NAP_MIN,
        };
        for claim in claims {
            // Before the look: whoever ends after this makes its handle readable, and whoever ended before it is seen
            // to have ended. A process that ended in between would be awaited by the longest pause.
            let before = processes_open.len();
            let processes = [claim.holder.process, claim.holder.command];
            let processes = processes.into_iter().flatten();
            processes_open.extend(processes.filter_map(|process| {
                process::open(&process, &claim.holder.host, &self.here, local)
            }));
            let evidence = self.evidence_in(&look, claim, Depth::Thorough);
            let stands = look
                .joined
                .as_ref()
                .ok()
                .and_then(|entry| entry.claim(claim.ticket));
            let held = judge(&self.rules.policy, claim, &evidence, now);
            // A record without a date, or with one in the future, gets the date of the look, so two looks date it
            // differently. So do they where an agent gives signs of life. Without a watch every claim is looked at
            // again after a short pause, so there a different date may count as the same.
            let is_same =
                |other: &Claim| other.token == claim.token && other.holder == claim.holder;
            let stands = stands.is_some_and(|stands| match watch {
                Some(_) if has_one_date(claim) => stands == claim,
                Some(_) | None => is_same(stands),
            });
            if !stands || !matches!(held, Standing::Held(_)) {
                return Ok(None);
            }
            // Such a hold ends while its process lives, and nothing tells of it.
            if let Some(rest_ms) = claim.limited_ms(&self.rules.policy, now) {
                let rest = Duration::from_millis(rest_ms.saturating_add(1));
                nap = nap.min(rest.max(RECORD_NAP_MIN));
            }
            // A lease that counts is looked at again just after it can have run out. It does not count
            // while a process is seen to live: the end of that process shows by itself.
            if processes_open.len() == before {
                let boot = claim.boot();
                let rest = claim.lease.remaining_ms(boot, now).saturating_add(1);
                nap = nap.min(Duration::from_millis(rest).max(RECORD_NAP_MIN));
                // What remains of a run whose named processes are gone is seen by its liveness lock
                // alone. It is mostly about to end as well.
                if evidence.liveness_lock == LivenessLock::Held {
                    nap = nap.min(RECORD_NAP_MIN);
                }
            }
        }
        let mut fds = processes_open;
        fds.extend(watch.map(Watch::into_descriptor));
        Ok(Some(Tells { fds, nap }))
    }
}

/// What tells of the end of a sleep behind records.
struct Tells {
    fds: Vec<Descriptor>,
    /// How long the sleep lasts at most.
    nap: Duration,
}

/// Whether two looks at a claim that did not change show the same dates. A waiter sleeps some time after its change: on
/// a slow disk that is another millisecond, and a date that each look sets anew would wake the waiter at once.
fn has_one_date(claim: &Claim) -> bool {
    let holder = &claim.holder;
    let gets_date_of_look = [UNDATED, FUTURE]
        .iter()
        .any(|fact| holder.fact(fact).is_some());
    !gets_date_of_look && holder.agent().is_none()
}

/// How a sleep ended that was meant to last until `until` and was cut shorter for a look.
fn woken_early(wake: Wake, until: Option<Instant>) -> Wake {
    match wake {
        Wake::Expired if until.is_none_or(|until| rest_until(until).is_some()) => Wake::Ready,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ThreadSleeper;
    use super::*;
    use crate::verbs::Verbs;
    use std::any::Any;
    use tenure_core::{
        Entering, Force, Holder, Kind, LockName, Patience, Queueing, Request, RequestId, Terms,
    };
    use tenure_os::clock::since;
    use tenure_os::process::Identity;

    fn request(id: &str, queueing: Queueing, store: &FileStore) -> Request {
        Request {
            holder: Holder {
                facts: Vec::new(),
                request_id: RequestId::new(id).expect("an accepted id"),
                actor: "test".to_owned(),
                process: None,
                command: None,
                host: store.here.clone().into(),
                why: "testing".to_owned(),
            },
            kind: Kind::Kernel,
            ttl_ms: 600_000,
            force: Force::No,
            patience: Patience::Queue,
            terms: Terms {
                queueing,
                ..Terms::default()
            },
        }
    }

    /// A holder, and a waiter behind it that may be asked to stop meanwhile.
    fn holder_and_waiter(
        store: &FileStore,
        name: &LockName,
    ) -> (Box<FileHandle>, Box<FileHandle>, Predecessor) {
        let enter = |id: &str, queueing| {
            let entered = store.enter(name, request(id, queueing, store), &store.now());
            let entered = entered.expect("an entered claim");
            let handle: Box<dyn Any> = entered.handle.expect("a handle");
            (
                handle.downcast().expect("one of this store"),
                entered.entering,
            )
        };
        let (holder, _) = enter("holder", Queueing::Fifo);
        let (waiter, entering) = enter("waiter", Queueing::Single);
        let Entering::Queued { behind, .. } = entering else {
            panic!("expected a place in the queue, saw {entering:?}");
        };
        (holder, waiter, behind)
    }

    const LONG: Duration = Duration::from_secs(5);

    /// The kernel looks for a lock through all that were taken before it by other open files.
    #[cfg(unix)]
    #[test]
    fn a_waiter_sleeps_and_looks_by_the_open_file_that_is_in_line_already() {
        use super::super::bytes;
        use crate::contract::Handle as _;

        let scratch = tempfile::tempdir().expect("a folder");
        let here = Identity::current().host;
        let store = FileStore::new(scratch.path(), here, Box::new(ThreadSleeper));
        let name = LockName::new("lock").expect("an accepted name");
        let (holder, waiter, _) = holder_and_waiter(&store, &name);
        let in_line = &waiter.opened;
        let now = store.now();
        let turn = || Ask::new(&name, About::Turn(&*waiter), &now);
        let own = || Ask::new(&name, About::Own(&*waiter), &now);
        // An open file does not exclude itself.
        let has_guard = |opened, ask: Ask<'_>| {
            let mut taken = None;
            let done = store.transact(&ask, &mut |_| {
                taken = bytes::try_lock(fd(opened), Byte::GUARD, Mode::Exclusive).ok();
                Step::Keep
            });
            done.expect("a look");
            taken
        };
        assert_eq!(has_guard(in_line, turn()), Some(true));
        assert_eq!(has_guard(in_line, own()), Some(true));
        assert!(waiter.beside.get().is_none(), "there is no other");
        // A command may have a copy now, and must not get the guard with it.
        assert!(waiter.descriptor().is_some());
        assert_eq!(has_guard(in_line, own()), Some(false));
        let beside = waiter.beside.get().expect("another one");
        assert_eq!(has_guard(beside, own()), Some(true));
        waiter.taken_back();
        assert_eq!(has_guard(in_line, own()), Some(true));
        assert_eq!(has_guard(beside, own()), Some(false));
        for is_lent in [false, true] {
            if is_lent {
                waiter.descriptor();
            }
            let ask = own();
            let mut seen = None;
            let done = store.transact(&ask, &mut |draft| {
                let claim = draft.entry.claim(waiter.ticket);
                seen = claim.map(|claim| (draft.evidence)(claim, Depth::Quick).liveness_lock);
                Step::Keep
            });
            done.expect("a look");
            assert_eq!(seen, Some(LivenessLock::Held), "its own claim lives");
        }
        drop(holder);
    }

    /// What a sleeper has seen of a claim may not be what it finds as it goes to sleep.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_sleeper_looks_at_once_where_it_finds_another_claim_or_another_date_that_counts() {
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Identity::current();
        let store = FileStore::new(scratch.path(), here.host, Box::new(ThreadSleeper));
        // Two looks date the second one differently, and so they do the third, whose agent gives signs.
        for (name, fact) in [
            ("dated", None),
            ("undated", Some((UNDATED, "true"))),
            ("agent", Some(("tenure:agent", "claude/1/a"))),
        ] {
            let lock = LockName::new(name).expect("an accepted name");
            let mut request = request("holder", Queueing::Fifo, &store);
            request.kind = Kind::Detached;
            request.holder.process = Some(here.process);
            let fact = fact.map(|(key, value)| (key.to_owned(), value.to_owned()));
            request.holder.facts.extend(fact);
            let entered = store.enter(&lock, request, &store.now());
            let found = entered.expect("an entered claim").entry.claims.remove(0);
            let names = store.names_of(&lock);
            let looks_having_seen = |change: &dyn Fn(&mut Claim)| {
                let mut seen = found.clone();
                change(&mut seen);
                let (claims, until) = (std::slice::from_ref(&seen), Some(instant()));
                let wake = store.sleep_on_records(&names, None, claims, &store.now(), until);
                wake.expect("a sleep") == Wake::Ready
            };
            assert!(!looks_having_seen(&|_| {}), "{name}");
            assert!(looks_having_seen(&|seen| seen.token = Some(1)), "{name}");
            let other_holder = |seen: &mut Claim| seen.holder.actor = "another".to_owned();
            assert!(looks_having_seen(&other_holder), "{name}");
            let earlier = looks_having_seen(&|seen| seen.lease.renewed.wall_ms -= 1);
            assert_eq!(earlier, name == "dated", "{name}");
        }
    }

    /// A process may end at any step of a look at it.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_sleeper_wakes_whenever_the_process_of_a_record_ends() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        use std::process::{Command, Stdio};
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Identity::current();
        let store = FileStore::new(scratch.path(), here.host, Box::new(ThreadSleeper));
        for round in 0..400_u64 {
            let mut child = Command::new("cat");
            let child = child.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = child.spawn().expect("a process");
            let lock = LockName::new(format!("lock-{round}")).expect("an accepted name");
            let mut request = request("holder", Queueing::Fifo, &store);
            request.kind = Kind::Detached;
            request.holder.process = Some(tenure_core::Process {
                pid: child.id(),
                started: process::start_time(child.id()),
            });
            let entered = store.enter(&lock, request, &store.now());
            let claims = entered.expect("an entered claim").entry.claims;
            let names = store.names_of(&lock);
            std::thread::scope(|threads| {
                // On a busy machine the end may come long after the signal.
                let ends = threads.spawn(|| {
                    child.kill().expect("its end");
                    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                    waitid(WaitId::Pid(Pid::from_child(&child)), how).expect("its end");
                    instant()
                });
                let began = instant();
                while since(began) < Duration::from_micros(round) {
                    std::hint::spin_loop();
                }
                let wake = store.sleep_on_records(&names, None, &claims, &store.now(), None);
                let woke = instant();
                assert_eq!(wake.expect("a sleep"), Wake::Ready);
                let took = woke.saturating_duration_since(ends.join().expect("an end"));
                assert!(took < RECORD_NAP_MAX / 2, "round {round}: {took:?}");
            });
            child.wait().expect("its end");
        }
    }

    /// Another thread may have a mutex in the instant of a fork. In the copy there is no such thread, which
    /// could give it back.
    #[cfg(unix)]
    #[test]
    #[allow(unsafe_code, reason = "a fork is what is tried")]
    fn a_copy_of_the_process_drops_a_claim_without_the_mutex_of_a_thread_that_waits() {
        use super::super::ends::Ends;
        use nix::sys::wait::{WaitStatus, waitpid};
        use nix::unistd::{ForkResult, alarm, fork};
        use std::sync::{Arc, mpsc::channel};
        let ends = Arc::new(Ends::new());
        let begun = Ends::begin(&ends, 7_u64);
        let awaited = ends.of(&7).expect("it goes on");
        let ((has_it, heard), (gives_back, may_give_back)) = (channel(), channel::<()>());
        std::thread::scope(|threads| {
            threads.spawn(move || {
                awaited.wait(|| {
                    has_it.send(()).expect("a listener");
                    let _ = may_give_back.recv();
                    ControlFlow::Break(())
                })
            });
            heard.recv().expect("it has the mutex");
            // SAFETY: the copy drops the claim and ends.
            match unsafe { fork() }.expect("a copy") {
                ForkResult::Child => {
                    alarm::set(10);
                    drop(begun);
                    // SAFETY: ends this process and nothing else.
                    unsafe { libc::_exit(0) }
                }
                ForkResult::Parent { child } => {
                    let end = waitpid(child, None).expect("its end");
                    assert_eq!(end, WaitStatus::Exited(child, 0), "it waited for the mutex");
                }
            }
            drop(gives_back);
        });
    }

    /// As on a system without watches.
    #[test]
    fn where_nothing_can_be_watched_a_waiter_looks_from_time_to_time() {
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Identity::current().host;
        let store = FileStore::new(scratch.path(), here, Box::new(ThreadSleeper));
        let name = LockName::new("lock").expect("an accepted name");
        let (holder, mut waiter, behind) = holder_and_waiter(&store, &name);
        waiter.wake_up = WakeUp::Looks;
        let sleep = |length: Option<Duration>| {
            let began = instant();
            let until = length.map(|length| began + length);
            let wake = store.sleep(&*waiter, &behind, &store.now(), until);
            (wake.expect("a sleep"), since(began))
        };
        for length in [None, Some(LONG)] {
            let (wake, took) = sleep(length);
            assert_eq!(wake, Wake::Ready, "it has to look: {length:?}");
            assert!(took >= WAKE_UP_NAP && took < LONG, "{took:?}");
        }
        assert_eq!(sleep(Some(WAKE_UP_NAP / 5)).0, Wake::Expired);
        store.release(&*holder, &store.now()).expect("a release");
        assert_eq!(sleep(None).0, Wake::Ready, "no claim is before it");
    }
}
