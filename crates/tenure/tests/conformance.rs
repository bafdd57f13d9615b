//! The stores of this crate keep what [`tenure::store`] promises; and the suite that says so is
//! itself put to the test: a store with a defect must not pass it.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(clippy::print_stdout, reason = "a slow promise is named")]

mod processes;

use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure::clock::instant;
use tenure::process::{Identity, start_time};
use tenure::store::conformance::{self, Harness};
use tenure::store::contract::Handle;
use tenure::store::file::{FileStore, ThreadSleeper};
use tenure::store::memory::MemoryStore;
use tenure::store::{
    Advanced, Cleaned, Entered, ForcedRelease, Reading, RenewedOwned, Store, StoreError, Wake,
};
use tenure_core::{
    Claim, Death, Entering, Force, Holder, Host, Kind, Left, Liveness, LockName, Mode, Now,
    Ownership, Patience, Policy, Predecessor, Process, Queueing, Released, Renewal, Request,
    RequestId, StopRequest, WaitingFor,
};

fn fresh_name(number: &AtomicU32) -> LockName {
    let number = number.fetch_add(1, Ordering::Relaxed);
    LockName::new(format!("lock-{number}")).expect("an accepted name")
}

/// Runs every promise, tells how long each took, and names all that are broken.
fn keeps_every_promise<H: Harness>(harness: &H) {
    let mut broken = Vec::new();
    for (name, promise) in conformance::promises::<H>() {
        let began = instant();
        let kept = promise(harness);
        println!(
            "{:>7.1?}  {name}",
            instant().saturating_duration_since(began)
        );
        broken.extend(kept.err().map(|broken| broken.to_string()));
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

struct Memory {
    store: MemoryStore,
    numbers: AtomicU32,
}

impl Memory {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(Policy::NATIVE),
            numbers: AtomicU32::new(1),
        }
    }
}

impl Harness for Memory {
    type Store = MemoryStore;

    fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    fn name(&self) -> LockName {
        fresh_name(&self.numbers)
    }

    fn host(&self) -> Host {
        Host {
            boot_id: Some("boot".to_owned()),
            ..Host::default()
        }
    }

    fn start_process(&self) -> Process {
        let pid = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.store.set_process(pid, Liveness::Alive);
        Process { pid, started: None }
    }

    fn end_process(&self, process: Process) {
        self.store
            .set_process(process.pid, Liveness::Dead(Death::Gone));
    }

    fn stranger(&self) -> (Host, Process) {
        let pid = self.numbers.fetch_add(1, Ordering::Relaxed);
        (Host::default(), Process { pid, started: None })
    }
}

/// Callers on one folder, each with descriptors of its own; processes are real ones.
struct Files {
    folder: tempfile::TempDir,
    host: Host,
    numbers: AtomicU32,
    children: Mutex<Vec<Child>>,
}

impl Files {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            host: Identity::current().host,
            numbers: AtomicU32::new(1),
            children: Mutex::default(),
        }
    }
}

impl Harness for Files {
    type Store = FileStore;

    fn store(&self) -> FileStore {
        let path = self.folder.path().join("locks");
        FileStore::new(path, self.host.clone(), Box::new(ThreadSleeper))
    }

    fn name(&self) -> LockName {
        fresh_name(&self.numbers)
    }

    fn host(&self) -> Host {
        self.host.clone()
    }

    fn start_process(&self) -> Process {
        let child = processes::lasting();
        let pid = child.id();
        self.children.lock().expect("no panic").push(child);
        Process {
            pid,
            started: start_time(pid),
        }
    }

    fn end_process(&self, process: Process) {
        let mut children = self.children.lock().expect("no panic");
        let child = children.iter_mut().find(|child| child.id() == process.pid);
        let child = child.expect("a process that was started here");
        child.kill().expect("a signal to a child");
        child.wait().expect("the child's end");
    }

    fn stranger(&self) -> (Host, Process) {
        let host = Host {
            name: "elsewhere".to_owned(),
            machine_id: Some("another machine".to_owned()),
            boot_id: Some("another boot".to_owned()),
            pid_namespace: self.host.pid_namespace,
        };
        let process = Process {
            pid: 1,
            started: Some(1),
        };
        (host, process)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for child in self.children.lock().expect("no panic").iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_memory_store_keeps_every_promise() {
    keeps_every_promise(&Memory::new());
}

#[test]
fn the_file_store_keeps_every_promise() {
    keeps_every_promise(&Files::new());
}

#[test]
fn a_hold_lapses_only_where_silence_alone_makes_it_stale() {
    let ttl = Duration::from_secs(60);
    for (policy, limit) in [
        (Policy::NATIVE, None),
        (Policy::SPRINT, None),
        (Policy::RESUME, None),
        (Policy::SESSION, Some(Duration::from_secs(600))),
        (Policy::FLEET, Some(ttl)),
    ] {
        let store = MemoryStore::new(policy);
        assert_eq!(store.lapses(ttl), limit, "{}", policy.name);
    }
}

// --- The suite itself --------------------------------------------------------------------------

/// What is wrong with a store, as its author might get it wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    AskingAgainQueues,
    AskingToStopReachesNobody,
    CleaningForgetsTheLastNumber,
    DisplacedOnesSleepOn,
    DroppingIsNotDying,
    DryRunsRemove,
    ForceNeedsNoYes,
    ImpatientOnesQueue,
    KeptPlacesAreAtTheEnd,
    KeptPlacesBlock,
    KeptPlacesNeverLapse,
    LookingSaysHeld,
    NamesAreForgotten,
    NobodyIsDisplaced,
    NobodyIsWoken,
    NotesAreLost,
    ReadersOvertake,
    ReadingCreates,
    ReleasesAskForNothing,
    RenewingCreates,
    RequestsToStopReachEverybody,
    SharedOnesHoldAlone,
    SlotsWakeEverybody,
    TurnsPassUnnoticed,
    WaitersAreGrantedAtOnce,
}

/// Each defect, and the promise that such a store breaks.
const DEFECTS: [(Defect, &str); 25] = [
    (
        Defect::AskingAgainQueues,
        "asking_again_under_the_same_request_id_finds_the_own_hold",
    ),
    (
        Defect::AskingToStopReachesNobody,
        "asking_to_stop_reaches_every_holder_and_nobody_else",
    ),
    (
        Defect::CleaningForgetsTheLastNumber,
        "tokens_rise_over_cleaning_and_a_clock_that_went_back",
    ),
    (
        Defect::DisplacedOnesSleepOn,
        "the_newest_displaces_who_waits_in_a_queue_of_one",
    ),
    (
        Defect::DroppingIsNotDying,
        "a_holder_that_dies_is_followed_by_the_next",
    ),
    (
        Defect::DryRunsRemove,
        "cleaning_removes_what_is_dead_and_nothing_else",
    ),
    (
        Defect::ForceNeedsNoYes,
        "force_overrides_a_detached_hold_only_when_confirmed",
    ),
    (
        Defect::ImpatientOnesQueue,
        "asking_at_once_refuses_and_writes_nothing",
    ),
    (
        Defect::KeptPlacesAreAtTheEnd,
        "a_kept_place_blocks_nobody_and_goes_before_later_ones",
    ),
    (
        Defect::KeptPlacesBlock,
        "a_kept_place_blocks_nobody_and_goes_before_later_ones",
    ),
    (
        Defect::KeptPlacesNeverLapse,
        "a_kept_place_lapses_with_its_grace_and_its_owner",
    ),
    (
        Defect::LookingSaysHeld,
        "a_hold_is_renewed_by_its_seat_and_never_created_by_it",
    ),
    (Defect::NamesAreForgotten, "names_shows_every_lock_once"),
    (
        Defect::NobodyIsDisplaced,
        "the_newest_displaces_who_waits_in_a_queue_of_one",
    ),
    (Defect::NobodyIsWoken, "a_waiter_sleeps_until_the_release"),
    (
        Defect::NotesAreLost,
        "a_note_of_waiting_stands_with_its_hold_and_goes_with_it",
    ),
    (
        Defect::ReadersOvertake,
        "readers_that_come_later_wait_for_the_writer",
    ),
    (
        Defect::ReadingCreates,
        "reading_an_absent_lock_finds_it_free_and_creates_nothing",
    ),
    (Defect::ReleasesAskForNothing, "a_release_wants_ownership"),
    (
        Defect::RenewingCreates,
        "a_hold_is_renewed_by_its_seat_and_never_created_by_it",
    ),
    (
        Defect::RequestsToStopReachEverybody,
        "a_request_to_stop_reaches_its_target_and_nobody_else",
    ),
    (
        Defect::SharedOnesHoldAlone,
        "shared_claims_hold_beside_each_other_and_an_exclusive_one_alone",
    ),
    (
        Defect::SlotsWakeEverybody,
        "a_free_slot_wakes_the_first_waiter_and_nobody_else",
    ),
    (
        Defect::TurnsPassUnnoticed,
        "a_free_slot_wakes_the_first_waiter_and_nobody_else",
    ),
    (Defect::WaitersAreGrantedAtOnce, "two_never_hold_at_once"),
];

/// A store that is right but for one defect.
struct Defective {
    inner: Arc<Mutex<MemoryStore>>,
    defect: Defect,
    policy: Policy,
}

/// A seat that, with one of the defects, goes on living after it was dropped.
struct Place {
    seat: Option<Box<dyn Handle>>,
    immortal: bool,
}

impl Place {
    #[expect(
        clippy::borrowed_box,
        reason = "the memory store's claims are boxes to the contract that this wrapper implements"
    )]
    fn seat(&self) -> &Box<dyn Handle> {
        self.seat.as_ref().expect("a seat until it is dropped")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.immortal {
            std::mem::forget(self.seat.take());
        }
    }
}

impl Defective {
    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn inner(&self) -> MemoryStore {
        self.inner.lock().expect("no panic").clone()
    }

    /// Leaves a place in the list for which nobody asked.
    fn intrude(&self, name: &LockName, now: &Now) -> Result<(), StoreError> {
        let entered = self.inner().enter(name, intruder(), now)?;
        std::mem::forget(entered.seat);
        Ok(())
    }
}

fn intruder() -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new("intruder").expect("an accepted id"),
            actor: String::new(),
            process: None,
            command: None,
            host: Host::default(),
            why: String::new(),
        },
        kind: Kind::Kernel,
        ttl_ms: 1,
        force: Force::No,
        patience: Patience::Queue,
        terms: tenure_core::Terms::default(),
    }
}

impl Store for Defective {
    type Seat = Place;

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn place(&self, name: &LockName) -> String {
        self.inner().place(name)
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        if self.has(Defect::ReadingCreates) {
            self.intrude(name, &Now::default())?;
        }
        self.inner().read(name)
    }

    fn enter(
        &self,
        name: &LockName,
        mut request: Request,
        now: &Now,
    ) -> Result<Entered<Place>, StoreError> {
        if self.has(Defect::ImpatientOnesQueue) {
            request.patience = Patience::Queue;
        }
        if self.has(Defect::ForceNeedsNoYes) && request.force == Force::Asked {
            request.force = Force::Confirmed;
        }
        if self.has(Defect::SharedOnesHoldAlone) {
            request.terms.mode = Mode::Exclusive;
        }
        if self.has(Defect::NobodyIsDisplaced) {
            request.terms.queueing = Queueing::Fifo;
        }
        if self.has(Defect::KeptPlacesAreAtTheEnd) {
            request.terms.kept = None;
        }
        let reads = request.terms.mode == Mode::Shared;
        if self.has(Defect::AskingAgainQueues) {
            // Every request becomes somebody else's.
            let id = format!("{}-{}", request.holder.request_id, now.wall_us);
            request.holder.request_id = RequestId::new(id).expect("an accepted id");
        }
        let mut entered = self.inner().enter(name, request, now)?;
        if let Entering::Queued { ticket, .. } = entered.entering
            && (self.has(Defect::WaitersAreGrantedAtOnce)
                || (self.has(Defect::ReadersOvertake) && reads))
        {
            let token = ticket + 1;
            entered.entering = Entering::Granted { ticket, token };
        }
        let immortal = self.has(Defect::DroppingIsNotDying);
        Ok(Entered {
            entering: entered.entering,
            entry: entered.entry,
            unread: entered.unread,
            events: entered.events,
            seat: entered.seat.map(|seat| Place {
                seat: Some(seat),
                immortal,
            }),
        })
    }

    fn sleep(
        &self,
        seat: &Place,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let oversleep = || {
            let rest = until.map(|until| until.saturating_duration_since(instant()));
            std::thread::sleep(rest.unwrap_or_default());
            Ok(Wake::Expired)
        };
        let turn = matches!(behind, Predecessor::Turn { .. });
        if self.has(Defect::NobodyIsWoken) || (turn && self.has(Defect::TurnsPassUnnoticed)) {
            return oversleep();
        }
        if turn && self.has(Defect::SlotsWakeEverybody) {
            return Ok(Wake::Ready);
        }
        let wake = self.inner().sleep(seat.seat(), behind, now, until)?;
        if self.has(Defect::DisplacedOnesSleepOn) {
            let reading = self.inner().read(seat.seat().name())?;
            let entry = reading.entry().cloned().unwrap_or_default();
            if entry.is_cancelled(seat.seat().ticket()) {
                return oversleep();
            }
        }
        Ok(wake)
    }

    fn advance(&self, seat: &Place, now: &Now) -> Result<Advanced, StoreError> {
        self.inner().advance(seat.seat(), now)
    }

    fn name_command(&self, seat: &Place, command: Process, now: &Now) -> Result<bool, StoreError> {
        self.inner().name_command(seat.seat(), command, now)
    }

    fn renew(&self, seat: &Place, now: &Now) -> Result<Renewal, StoreError> {
        let renewal = self.inner().renew(seat.seat(), now)?;
        match renewal {
            Renewal::Renewed { token, .. } if self.has(Defect::RequestsToStopReachEverybody) => {
                Ok(Renewal::Renewed {
                    token,
                    cancel_requested: true,
                })
            }
            Renewal::Lost if self.has(Defect::RenewingCreates) => {
                self.intrude(seat.seat().name(), now)?;
                Ok(renewal)
            }
            _ => Ok(renewal),
        }
    }

    fn verify(&self, seat: &Place, now: &Now) -> Result<Renewal, StoreError> {
        if self.has(Defect::LookingSaysHeld) {
            return Ok(Renewal::Renewed {
                token: seat.seat().ticket() + 1,
                cancel_requested: false,
            });
        }
        self.inner().verify(seat.seat(), now)
    }

    fn leave(&self, seat: &Place, now: &Now) -> Result<Left, StoreError> {
        self.inner().leave(seat.seat(), now)
    }

    fn park(
        &self,
        seat: &Place,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        if self.has(Defect::KeptPlacesBlock) {
            let entry = self.inner().read(seat.seat().name())?.entry().cloned();
            let claim = entry.and_then(|entry| entry.claim(seat.seat().ticket()).cloned());
            return Ok(claim.is_some_and(|claim| claim.token.is_none()));
        }
        let grace_ms = if self.has(Defect::KeptPlacesNeverLapse) {
            u64::MAX
        } else {
            grace_ms
        };
        self.inner().park(seat.seat(), owner, grace_ms, now)
    }

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        if self.has(Defect::AskingToStopReachesNobody) {
            return Ok(Vec::new());
        }
        self.inner().cancel(name, by, now)
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
        now: &Now,
    ) -> Result<bool, StoreError> {
        if self.has(Defect::NotesAreLost) {
            return self.inner().note_waiting(name, token, None, now);
        }
        self.inner().note_waiting(name, token, waiting_for, now)
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        self.inner().renew_owned(name, owns, now)
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        if self.has(Defect::ReleasesAskForNothing) {
            let anybody = |_: &Claim| Ownership::Shown;
            return self.inner().release_owned(name, &anybody, now);
        }
        self.inner().release_owned(name, owns, now)
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        self.inner().force_release(name, force, now)
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Reading,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        self.inner().watch(name, seen, now, until)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        if self.has(Defect::NamesAreForgotten) {
            return Ok(());
        }
        self.inner().names(each)
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let dry_run = dry_run && !self.has(Defect::DryRunsRemove);
        let cleaned = self.inner().clean(name, now, dry_run)?;
        if self.has(Defect::CleaningForgetsTheLastNumber) && cleaned.removed {
            *self.inner.lock().expect("no panic") = MemoryStore::new(self.policy);
        }
        Ok(cleaned)
    }
}

/// Callers on a defective store.
struct Unsound {
    memory: Memory,
    shared: Arc<Mutex<MemoryStore>>,
    defect: Defect,
}

impl Harness for Unsound {
    type Store = Defective;

    fn store(&self) -> Defective {
        Defective {
            inner: Arc::clone(&self.shared),
            defect: self.defect,
            policy: Policy::NATIVE,
        }
    }

    fn name(&self) -> LockName {
        self.memory.name()
    }

    fn host(&self) -> Host {
        self.memory.host()
    }

    fn start_process(&self) -> Process {
        self.memory.start_process()
    }

    fn end_process(&self, process: Process) {
        self.memory.end_process(process);
    }

    fn stranger(&self) -> (Host, Process) {
        self.memory.stranger()
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(300)
    }
}

#[test]
fn a_store_with_a_defect_breaks_the_promise_that_names_it() {
    for (defect, promise) in DEFECTS {
        let broken = || {
            let memory = Memory::new();
            let unsound = Unsound {
                shared: Arc::new(Mutex::new(memory.store.clone())),
                memory,
                defect,
            };
            let (_, kept) = conformance::promises::<Unsound>()
                .into_iter()
                .find(|(name, _)| *name == promise)
                .expect("a promise of the suite");
            kept(&unsound).err().map(|broken| broken.promise)
        };
        // Two that hold at once have to meet in an instant, which a busy machine may keep them from.
        let broken = (0..20).find_map(|_| broken());
        assert_eq!(broken, Some(promise), "{defect:?} goes unnoticed");
    }
}

#[test]
fn a_store_behind_the_defective_one_is_right_in_all_else() {
    let memory = Memory::new();
    let unsound = Unsound {
        shared: Arc::new(Mutex::new(memory.store.clone())),
        memory,
        defect: Defect::None,
    };
    let kept = conformance::all(&unsound);
    assert_eq!(kept, Ok(()), "the defects above are the wrapper's own");
}
