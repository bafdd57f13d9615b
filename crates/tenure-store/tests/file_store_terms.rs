//! Shared holds, slots, queues of one and reserved places in the file store, as far as they depend on
//! what the kernel does: bytes that are released and taken again, processes that are killed, sleeps that
//! end at once.
//!
//! Left to other tests: what all stores promise (`conformance.rs`).

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitOptions};
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
#[cfg(unix)]
use std::os::fd::AsFd as AsDescriptor;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsDescriptor;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tenure_core::{
    Entering, Entry, Force, Holder, Kept, Kind, LockName, Mode, Now, PENDING_MAX, Patience,
    Predecessor, Queueing, Reason, Request, RequestId, Terms, TryGrant,
};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;
use tenure_store::Handle;
use tenure_store::Verbs;
use tenure_store::contract::{About, Ask, Step};
use tenure_store::file::{
    BorrowedDescriptor, Byte, ByteLock, FileStore, Mode as LockMode, ThreadSleeper,
};
use tenure_store::verbs::Entered;
use tenure_store::{Store, Wake};

fn borrow(file: &impl AsDescriptor) -> BorrowedDescriptor<'_> {
    #[cfg(unix)]
    return file.as_fd();
    #[cfg(windows)]
    return file.as_handle();
}

/// A claim of a caller in this process.
type ClaimHandle = Box<dyn Handle>;

/// Well under the second after which a sleeper looks by itself that was not told.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Longer than any of these tests should take.
const LONG: Duration = Duration::from_secs(30);

struct Place {
    scratch: tempfile::TempDir,
    identity: Identity,
    name: LockName,
}

impl Place {
    fn new() -> Self {
        Self {
            scratch: tempfile::tempdir().expect("a folder"),
            identity: Identity::current(),
            name: LockName::new("lock").expect("an accepted name"),
        }
    }

    fn folder(&self) -> PathBuf {
        self.scratch.path().join("locks")
    }

    fn file(&self) -> PathBuf {
        self.folder().join("lock.tenure")
    }

    fn store(&self) -> FileStore {
        store_in(&self.folder(), &self.identity)
    }

    fn now(&self) -> Now {
        SystemClock::new(self.identity.host.boot_id.as_deref()).now()
    }

    fn enter(&self, id: &str, terms: Terms) -> Entered {
        let entered =
            self.store()
                .enter(&self.name, request(&self.identity, id, terms), &self.now());
        entered.expect("an entered claim")
    }

    fn granted(&self, id: &str, terms: Terms) -> ClaimHandle {
        let entered = self.enter(id, terms);
        assert!(
            matches!(entered.entering, Entering::Granted { .. }),
            "{id}: {:?}",
            entered.entering
        );
        entered.handle.expect("a handle")
    }

    fn queued(&self, id: &str, terms: Terms) -> (ClaimHandle, Predecessor) {
        let entered = self.enter(id, terms);
        match entered.entering {
            Entering::Queued { behind, .. } => (entered.handle.expect("a handle"), behind),
            other => panic!("{id}: expected a place in the queue, saw {other:?}"),
        }
    }

    fn list(&self) -> Entry {
        let reading = self.store().read(&self.name, None).expect("a reading");
        reading.entry().expect("a list").clone()
    }

    fn sleep(&self, handle: &ClaimHandle, behind: &Predecessor, length: Duration) -> Wake {
        let until = Some(instant() + length);
        let wake = self.store().sleep(&**handle, behind, &self.now(), until);
        wake.expect("a sleep")
    }

    /// A process of its own that enters, and stays until it is killed. Returns once it has entered.
    fn other_process(&self, id: &str, what: &str) -> OtherProcess {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "helper_that_enters_and_stays",
                "--ignored",
                "--nocapture",
            ])
            .env(FOLDER, self.folder())
            .env(ID, id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let told = BufReader::new(child.stdout.take().expect("its output"));
        let other_process = OtherProcess(child);
        let mut lines = told.lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains(SAYS));
        assert!(
            said.as_ref().is_some_and(|line| line.contains(what)),
            "{id} says {said:?}"
        );
        other_process
    }
}

fn store_in(folder: &Path, identity: &Identity) -> FileStore {
    FileStore::new(folder, identity.host.clone(), Box::new(ThreadSleeper))
}

fn request(identity: &Identity, id: &str, terms: Terms) -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new(id).expect("an accepted id"),
            actor: "test".to_owned(),
            process: Some(identity.process),
            command: None,
            host: identity.host.clone().into(),
            why: "testing".to_owned(),
        },
        kind: Kind::Kernel,
        ttl_ms: 600_000,
        force: Force::No,
        patience: Patience::Queue,
        terms,
    }
}

fn slots(slots: u32) -> Terms {
    Terms {
        mode: NonZeroU32::new(slots).map_or(Mode::Exclusive, Mode::Slots),
        ..Terms::default()
    }
}

fn single() -> Terms {
    Terms {
        queueing: Queueing::Single,
        ..Terms::default()
    }
}

const FOLDER: &str = "TENURE_TEST_FOLDER";
const ID: &str = "TENURE_TEST_ID";
const SAYS: &str = "entered:";

/// A process of our own, which ends with the test.
struct OtherProcess(Child);

impl OtherProcess {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Not a test: the others start this in a process of its own.
#[test]
#[ignore = "enters and stays; started by the tests below"]
#[allow(clippy::print_stdout, reason = "its parent waits for this")]
fn helper_that_enters_and_stays() {
    let (Some(folder), Some(id)) = (std::env::var_os(FOLDER), std::env::var(ID).ok()) else {
        return;
    };
    let identity = Identity::current();
    let now = SystemClock::new(identity.host.boot_id.as_deref()).now();
    let name = LockName::new("lock").expect("an accepted name");
    let entered = store_in(Path::new(&folder), &identity)
        .enter(&name, request(&identity, &id, slots(2)), &now)
        .expect("an entered claim");
    println!("{SAYS} {:?}", entered.entering);
    loop {
        thread::park();
    }
}

#[test]
fn a_killed_slot_holder_wakes_the_first_waiter_at_once() {
    // A machine may stand still for longer than that, but not three times.
    let mut took = Vec::new();
    while took.iter().all(|took| *took >= AT_ONCE) {
        assert!(took.len() < 3, "woken after {took:?}");
        took.push(woken_by_the_death_of_a_slot_holder());
    }
}

/// How long after the death of a holder of a slot the first waiter woke. It gets the slot.
fn woken_by_the_death_of_a_slot_holder() -> Duration {
    let place = Place::new();
    let mut dies = place.other_process("dies", "Granted");
    let _stays = place.other_process("stays", "Granted");
    let (first, behind) = place.queued("first", slots(2));
    assert!(matches!(behind, Predecessor::AnyOf(_)), "{behind:?}");
    let took = thread::scope(|threads| {
        let sleeping = threads.spawn(|| {
            let wake = place.sleep(&first, &behind, LONG);
            (wake, instant())
        });
        // The sleeper is asleep by now, and early in its nap.
        thread::sleep(Duration::from_millis(100));
        dies.kill();
        let killed = instant();
        let (wake, woken) = sleeping.join().expect("a sleeper");
        assert_eq!(wake, Wake::Ready);
        woken.saturating_duration_since(killed)
    });
    let advanced = place
        .store()
        .try_grant(&*first, &place.now())
        .expect("a look");
    assert!(
        matches!(advanced.grant, TryGrant::Granted { .. }),
        "{advanced:?}"
    );
    took
}

#[test]
fn a_holder_that_its_byte_alone_tells_of_is_looked_at_often() {
    let place = Place::new();
    let nameless = |id| {
        let mut request = request(&place.identity, id, slots(2));
        request.holder.process = None;
        let entered = place.store().enter(&place.name, request, &place.now());
        entered.expect("an entered claim").handle.expect("a handle")
    };
    let (ends, _stays) = (nameless("ends"), nameless("stays"));
    let (first, behind) = place.queued("first", slots(2));
    assert!(matches!(behind, Predecessor::AnyOf(_)), "{behind:?}");
    thread::scope(|threads| {
        let sleeping = threads.spawn(|| (place.sleep(&first, &behind, LONG), instant()));
        // Neither a write nor the end of a process reports this.
        thread::sleep(Duration::from_millis(20));
        drop(ends);
        let ended = instant();
        let mut woken = sleeping.join().expect("a sleeper");
        let is_granted = || {
            let advanced = place.store().try_grant(&*first, &place.now());
            let grant = advanced.expect("a look").grant;
            matches!(grant, TryGrant::Granted { .. })
        };
        while !is_granted() {
            woken = (place.sleep(&first, &behind, LONG), instant());
        }
        assert_eq!(woken.0, Wake::Ready);
        let took = woken.1.saturating_duration_since(ended);
        assert!(took < AT_ONCE, "woken after {took:?}");
    });
}

#[test]
fn a_killed_waiter_wakes_the_one_that_sleeps_on_its_turn() {
    let place = Place::new();
    let _holders = [place.granted("a", slots(2)), place.granted("b", slots(2))];
    let mut first = place.other_process("first", "Queued");
    let (second, behind) = place.queued("second", slots(2));
    assert!(matches!(behind, Predecessor::Turn { .. }), "{behind:?}");
    thread::scope(|threads| {
        let sleeping = threads.spawn(|| (place.sleep(&second, &behind, LONG), instant()));
        thread::sleep(Duration::from_millis(100));
        first.kill();
        let killed = instant();
        let (wake, woken) = sleeping.join().expect("a sleeper");
        assert_eq!(wake, Wake::Ready);
        let took = woken.saturating_duration_since(killed);
        assert!(took < AT_ONCE, "woken after {took:?}");
    });
    let advanced = place
        .store()
        .try_grant(&*second, &place.now())
        .expect("a look");
    assert!(
        matches!(advanced.grant, TryGrant::Behind(Predecessor::AnyOf(_))),
        "the first in line now: {advanced:?}"
    );
}

/// As that of a waiter which finds out that others passed it while it was stopped.
#[test]
fn a_look_that_writes_and_grants_nothing_keeps_the_waiter_s_turn() {
    let place = Place::new();
    let _holders = [place.granted("a", slots(2)), place.granted("b", slots(2))];
    let (first, _) = place.queued("first", slots(2));
    let (second, behind) = place.queued("second", slots(2));
    assert!(matches!(behind, Predecessor::Turn { .. }), "{behind:?}");
    let now = place.now();
    let ask = Ask::new(&place.name, About::Turn(&*first), &now);
    let written = place.store().transact(&ask, &mut |_| Step::write_if(true));
    assert!(written.is_ok(), "{written:?}");
    assert_eq!(place.sleep(&second, &behind, Duration::ZERO), Wake::Expired);
}

#[cfg(unix)]
#[test]
fn a_waiter_behind_a_stopped_one_waits_for_the_end_of_its_grace() {
    let place = Place::new();
    let [leaves, _stays] = [place.granted("a", slots(2)), place.granted("b", slots(2))];
    let first = place.other_process("first", "Queued");
    let (second, _) = place.queued("second", slots(2));
    let pid = Pid::from_child(&first.0);
    rustix::process::kill_process(pid, Signal::STOP).expect("a stop");
    let stopped = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED);
    let (_, status) = stopped.expect("a child").expect("its state");
    assert!(status.stopped(), "{status:?}");
    let left = place.store().release(&*leaves, &place.now());
    left.expect("a release");
    let looked = place.store().try_grant(&*second, &place.now());
    match looked.expect("a look").grant {
        TryGrant::Behind(behind @ Predecessor::Still { .. }) => {
            let wake = place.sleep(&second, &behind, Duration::from_millis(50));
            assert_eq!(wake, Wake::Expired);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_within_one_of_two_holds_keeps_that_one_alone() {
    let place = Place::new();
    let [first, second] = [place.granted("a", slots(2)), place.granted("b", slots(2))];
    let token = place.list().claim(second.ticket()).and_then(|it| it.token);
    let within = place
        .store()
        .go_within(&place.name, token.expect("a hold"))
        .expect("an answer");
    let within = within.expect("a part in the second one");
    // The command inherits the descriptor, and leaves a daemon behind.
    #[cfg(unix)]
    let inherited = within.descriptor().expect("a descriptor");
    #[cfg(unix)]
    let _daemons = inherited.try_clone_to_owned().expect("a copy");
    let leaves = |handle: &ClaimHandle| {
        let left = place.store().release_if_alone(&**handle, &place.now());
        left.expect("an answer").is_some()
    };
    assert!(!leaves(&second), "a run works within it");
    assert!(leaves(&first));
    drop(within);
    assert!(leaves(&second));
}

#[test]
fn a_bounded_queue_counts_those_who_wait_in_no_such_queue() {
    let place = Place::new();
    let bounded = Terms {
        queueing: Queueing::Max,
        ..Terms::default()
    };
    let mut handles = vec![place.granted("holder", Terms::default())];
    for number in 1..PENDING_MAX {
        handles.push(place.queued(&format!("w{number}"), Terms::default()).0);
    }
    handles.push(place.queued("room-for-one", bounded).0);
    let full = place.enter("one-too-many", bounded).entering;
    assert!(
        matches!(&full, Entering::Refused(refusal) if refusal.reason == Reason::QueueFull),
        "{full:?}"
    );
    handles.push(place.queued("unbounded", Terms::default()).0);
}

#[test]
fn a_waiter_that_finds_one_of_several_holders_dead_sweeps_it_although_its_turn_has_not_come() {
    let place = Place::new();
    let shared = Terms {
        mode: Mode::Shared,
        ..Terms::default()
    };
    let lives = place.granted("lives", shared);
    let dies = place.granted("dies", shared);
    let (writer, _) = place.queued("writer", Terms::default());
    drop(dies);
    let advanced = place
        .store()
        .try_grant(&*writer, &place.now())
        .expect("a look");
    assert!(
        matches!(advanced.grant, TryGrant::Behind(_)),
        "{advanced:?}"
    );
    let tickets: Vec<u64> = place
        .list()
        .claims
        .iter()
        .map(|claim| claim.ticket)
        .collect();
    assert_eq!(tickets, [lives.ticket(), writer.ticket()], "{advanced:?}");
}

/// Displaces a claim and returns how long after that it woke up.
fn displaced_in_its_sleep(
    place: &Place,
    older: &ClaimHandle,
    behind: &Predecessor,
    terms: Terms,
) -> Duration {
    thread::scope(|threads| {
        let sleeping = threads.spawn(|| (place.sleep(older, behind, LONG), instant()));
        thread::sleep(Duration::from_millis(50));
        let began: Instant = instant();
        let newer = place.enter("newer", terms);
        let (wake, woken) = sleeping.join().expect("a sleeper");
        assert_eq!(wake, Wake::Ready);
        drop(newer);
        woken.saturating_duration_since(began)
    })
}

#[test]
fn a_wake_up_ends_a_sleep_on_a_byte_at_once() {
    let place = Place::new();
    let holder = place.granted("holder", Terms::default());
    let (older, behind) = place.queued("older", single());
    assert!(
        matches!(behind, Predecessor::LivenessLock { .. }),
        "{behind:?}"
    );
    // Once in the first sleep, which opens the watch, and once in a later one.
    let wake = place.sleep(&older, &behind, Duration::from_millis(20));
    assert_eq!(wake, Wake::Expired, "no caller asked it");
    let took = displaced_in_its_sleep(&place, &older, &behind, single());
    assert!(took < AT_ONCE, "woken after {took:?}");
    let advanced = place
        .store()
        .try_grant(&*older, &place.now())
        .expect("a look");
    assert!(
        matches!(advanced.grant, TryGrant::Cancelled { .. }),
        "{advanced:?}"
    );
    drop((holder, older));
}

#[test]
fn a_wake_up_in_the_first_sleep_and_before_it_is_heard() {
    for before_it in [false, true] {
        let place = Place::new();
        let _holder = place.granted("holder", Terms::default());
        let (older, behind) = place.queued("older", single());
        let took = if before_it {
            let _newer = place.enter("newer", single());
            let began = instant();
            assert_eq!(place.sleep(&older, &behind, LONG), Wake::Ready);
            tenure_os::clock::since(began)
        } else {
            displaced_in_its_sleep(&place, &older, &behind, single())
        };
        assert!(
            took < AT_ONCE,
            "woken after {took:?}, before it: {before_it}"
        );
    }
}

#[test]
fn a_wake_up_between_two_sleeps_is_heard() {
    let place = Place::new();
    let _holder = place.granted("holder", Terms::default());
    let (older, behind) = place.queued("older", single());
    let wake = place.sleep(&older, &behind, Duration::from_millis(20));
    assert_eq!(wake, Wake::Expired, "no caller asked it");
    let _newer = place.enter("newer", single());
    let began = instant();
    assert_eq!(place.sleep(&older, &behind, LONG), Wake::Ready);
    assert!(
        tenure_os::clock::since(began) < AT_ONCE,
        "{:?}",
        tenure_os::clock::since(began)
    );
}

#[test]
fn a_wake_up_ends_a_sleep_on_several_holders_at_once_and_is_not_missed_before_it() {
    for before_it in [false, true] {
        let place = Place::new();
        let _holders = [place.granted("a", slots(2)), place.granted("b", slots(2))];
        let terms = Terms {
            mode: slots(2).mode,
            ..single()
        };
        let (older, behind) = place.queued("older", terms);
        assert!(matches!(behind, Predecessor::AnyOf(_)), "{behind:?}");
        let took = if before_it {
            let _newer = place.enter("newer", terms);
            let began = instant();
            assert_eq!(place.sleep(&older, &behind, LONG), Wake::Ready);
            tenure_os::clock::since(began)
        } else {
            displaced_in_its_sleep(&place, &older, &behind, terms)
        };
        assert!(
            took < AT_ONCE,
            "woken after {took:?}, before it: {before_it}"
        );
    }
}

/// A waiter that slept on a byte takes it for an instant as it wakes up, and may be stopped in that very
/// instant. The place is taken again once the byte is free, and the guard is not kept meanwhile.
#[test]
fn a_kept_place_is_taken_again_although_a_waiter_still_has_its_bytes() {
    for byte in [Byte::of_ticket, Byte::of_turn] {
        let place = Place::new();
        let _holders = [place.granted("a", slots(2)), place.granted("b", slots(2))];
        let (kept, _) = place.queued("kept", slots(2));
        let ticket = kept.ticket();
        let parked = place
            .store()
            .reserve(&*kept, None, 60_000, &place.now(), None);
        assert!(parked.expect("an answer"), "the place is kept");
        let file = fs::File::open(place.file()).expect("the lock's file");
        let lock = ByteLock {
            byte: byte(ticket),
            mode: LockMode::Shared,
        };
        assert!(
            lock.try_take(borrow(&file)).expect("an answer"),
            "it was let go"
        );
        thread::scope(|threads| {
            let back = threads.spawn(|| {
                let terms = Terms {
                    kept: Some(Kept::Ticket(ticket)),
                    ..slots(2)
                };
                place.enter("back", terms)
            });
            thread::sleep(Duration::from_millis(30));
            assert!(!back.is_finished(), "another process has its byte");
            let began = instant();
            let (other, _) = place.queued("other", slots(2));
            assert!(
                tenure_os::clock::since(began) < AT_ONCE,
                "the guard is free"
            );
            drop(other);
            lock.give_back(borrow(&file)).expect("an answer");
            let entered = back.join().expect("an answer");
            assert!(
                matches!(entered.entering, Entering::Queued { ticket: own, .. } if own == ticket),
                "{:?}",
                entered.entering
            );
        });
    }
}

#[test]
fn a_kept_place_is_another_one_s_in_another_mode() {
    let place = Place::new();
    let _holder = place.granted("holder", Terms::default());
    let (kept, _) = place.queued("kept", slots(2));
    let ticket = kept.ticket();
    let parked = place
        .store()
        .reserve(&*kept, None, 60_000, &place.now(), None);
    assert!(parked.expect("an answer"), "the place is kept");
    let back = |mode| {
        let kept = Some(Kept::Ticket(ticket));
        place
            .enter(
                "back",
                Terms {
                    mode,
                    kept,
                    ..Terms::default()
                },
            )
            .entering
    };
    assert_eq!(back(Mode::Exclusive), Entering::NotKept);
    let same = back(slots(2).mode);
    assert!(
        matches!(same, Entering::Queued { ticket: own, .. } if own == ticket),
        "{same:?}"
    );
}
