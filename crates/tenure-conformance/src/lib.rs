//! Holds a store to the contract: [`promises`] has each promise by its name, and [`all`] looks at all of them.
//!
//! A store of your own runs the suite through a [`Harness`], which makes callers on one place,
//! fresh names, and processes that live until they are told to end. The stores of `tenure` run
//! it in `tests/conformance.rs`. Each promise uses names of its own, so all of them can share one
//! place and run beside each other.
//!
//! The suite is written for [`tenure_core::Policy::NATIVE`]. A waiter gets ten seconds to be
//! woken up ([`Harness::patience`]): far more than any store needs, and a lost wake-up takes
//! longer than that.
//!
//! # Examples
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! # mod tenure { pub use tenure_core as model; pub mod store { pub use tenure_conformance as conformance; pub use tenure_store::*; } }
//! use tenure::model::{Death, Host, Liveness, LockName, Policy, Process};
//! use tenure::store::{conformance, memory::MemoryStore};
//!
//! struct Memory(MemoryStore, AtomicU32);
//!
//! impl conformance::Harness for Memory {
//!     type Store = MemoryStore;
//!     fn store(&self) -> MemoryStore {
//!         self.0.clone()
//!     }
//!     fn name(&self) -> LockName {
//!         let number = self.1.fetch_add(1, Ordering::Relaxed);
//!         LockName::new(format!("lock-{number}")).expect("an accepted name")
//!     }
//!     fn host(&self) -> Host {
//!         Host::default()
//!     }
//!     fn start_process(&self) -> Process {
//!         let pid = self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.set_process(pid, Liveness::Alive);
//!         Process { pid, started: None }
//!     }
//!     fn end_process(&self, process: Process) {
//!         self.0.set_process(process.pid, Liveness::Dead(Death::Gone));
//!     }
//!     fn stranger(&self) -> (Host, Process) {
//!         let pid = self.1.fetch_add(1, Ordering::Relaxed);
//!         (Host::default(), Process { pid, started: None })
//!     }
//! }
//!
//! let memory = Memory(MemoryStore::new(Policy::NATIVE), AtomicU32::new(1));
//! for (name, promise) in conformance::promises() {
//!     if name == "a_release_wants_ownership" {
//!         promise(&memory)?;
//!     }
//! }
//! # Ok::<(), conformance::Broken>(())
//! ```
//!
//! **Who may call whom.** The suite calls stores by their contract and their verbs (`tenure-store`), and waits with the loop
//! of the engine, as callers do. The tests of a store call it; so the library shows it as `tenure::store::conformance`. Its
//! version is that of the contract.
//!
//! What it leaves to others: what happens to a store when a process is killed in the middle of a
//! change, and what only one kind of store promises (`tests/file_store.rs` for files).

mod scene;
mod terms;

use scene::{Countdown, Scene, later, locked, owned_by, tickets};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tenure_core::{
    Claim, Entering, Entry, Event, Force, Host, Left, Life, LivenessLock, LockName, Ownership,
    Patience, Process, Reason, Released, Renewal, Request, Standing, Takeover, TryGrant,
};
use tenure_engine::engine::{self, Silent, Wait};
use tenure_os::clock::{instant, nap};
use tenure_store::contract::{Ring, Which};
use tenure_store::verbs::{Adopted, Adopter};
use tenure_store::{Handle, Reading, RenewedOwned, Store, Verbs, Wake};

use terms::{
    a_free_slot_wakes_the_first_waiter_and_nobody_else,
    a_kept_place_blocks_nobody_and_goes_before_later_ones,
    a_kept_place_lapses_with_its_grace_and_its_owner,
    a_note_of_waiting_stands_with_its_hold_and_goes_with_it, a_slot_has_a_number_that_no_other_has,
    asking_to_stop_reaches_every_holder_and_nobody_else,
    readers_that_come_later_wait_for_the_writer,
    shared_claims_hold_beside_each_other_and_an_exclusive_one_alone,
    the_newest_displaces_who_waits_in_a_queue_of_one,
};

/// How long a wait lasts that is meant to expire.
const SHORT_WAIT: Duration = Duration::from_millis(60);

/// How often a promise looks at what another thread does.
const LOOK: Duration = Duration::from_millis(1);

/// A ttl that no promise outlasts unless it moves the clock itself.
const TTL_MS: u64 = 600_000;

/// Makes what the promises need: several callers on one place.
pub trait Harness: Sync {
    /// The store.
    type Store: Store;

    /// A new caller on the same place. It shares nothing with the callers before it that two
    /// processes would not share.
    fn store(&self) -> Self::Store;

    /// A name that was not given before.
    fn name(&self) -> LockName;

    /// The machine on which the callers run.
    fn host(&self) -> Host;

    /// A process on that machine, alive until [`Harness::end_process`].
    fn start_process(&self) -> Process;

    /// Ends a process that [`Harness::start_process`] made; it is dead when this returns.
    fn end_process(&self, process: Process);

    /// A process that cannot be judged from here, and where it was recorded.
    fn stranger(&self) -> (Host, Process);

    /// How long a waiter may take to notice that it is its turn, before that counts as never.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The promise, by the name of its function.
    pub promise: &'static str,
    /// What was expected and what was seen.
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { promise, what, .. } = self;
        write!(f, "{promise}: {what}")
    }
}

impl std::error::Error for Broken {}

/// A promise as a function.
pub type Promise<H> = fn(&H) -> Result<(), Broken>;

/// Every promise, with its name.
pub fn promises<H: Harness>() -> Vec<(&'static str, Promise<H>)> {
    macro_rules! listed {
        ($($promise:ident),* $(,)?) => {
            vec![$((
                stringify!($promise),
                (|harness: &H| $promise(&Scene::new(harness, stringify!($promise))?)) as Promise<H>,
            )),*]
        };
    }
    listed![
        reading_an_absent_lock_finds_it_free_and_creates_nothing,
        the_first_is_granted_and_the_second_queues_behind_it,
        asking_at_once_refuses_and_writes_nothing,
        tokens_only_rise,
        tokens_rise_over_cleaning_and_a_clock_that_went_back,
        grants_follow_the_order_of_the_queue,
        a_waiter_sleeps_until_the_release,
        a_parked_waiter_is_rung_by_the_release,
        a_bounded_sleep_expires_and_giving_up_keeps_the_order,
        a_watcher_without_a_claim_is_woken_by_the_end_of_the_hold,
        a_claim_that_can_be_seen_is_alive,
        a_holder_that_dies_is_followed_by_the_next,
        a_waiter_that_dies_blocks_nobody,
        a_hold_outlives_its_supervisor_while_its_command_runs,
        a_named_command_shows,
        a_hold_is_adopted_once_and_only_from_the_dead,
        a_hold_is_handed_over_and_its_keeper_has_lost_it,
        a_hold_is_renewed_by_its_handle_and_never_created_by_it,
        a_hold_is_renewed_by_its_owner_and_by_nobody_else,
        a_release_wants_ownership,
        a_detached_hold_lives_with_its_owner,
        a_detached_hold_of_a_stranger_lives_until_its_ttl,
        a_detached_waiter_dies_with_its_handle,
        asking_again_under_the_same_request_id_finds_the_own_hold,
        a_request_to_stop_reaches_its_target_and_nobody_else,
        force_overrides_a_detached_hold_only_when_confirmed,
        cleaning_removes_what_is_dead_and_nothing_else,
        names_shows_every_lock_once,
        a_handle_serves_two_threads_at_once,
        two_never_hold_at_once,
        shared_claims_hold_beside_each_other_and_an_exclusive_one_alone,
        readers_that_come_later_wait_for_the_writer,
        a_free_slot_wakes_the_first_waiter_and_nobody_else,
        a_slot_has_a_number_that_no_other_has,
        the_newest_displaces_who_waits_in_a_queue_of_one,
        a_kept_place_blocks_nobody_and_goes_before_later_ones,
        a_kept_place_lapses_with_its_grace_and_its_owner,
        asking_to_stop_reaches_every_holder_and_nobody_else,
        a_note_of_waiting_stands_with_its_hold_and_goes_with_it,
    ]
}

/// Every promise, one after the other, up to the first that is broken.
///
/// # Errors
/// - [`Broken`] names the promise and says what was seen.
pub fn all<H: Harness>(harness: &H) -> Result<(), Broken> {
    promises::<H>()
        .into_iter()
        .try_for_each(|(_, promise)| promise(harness))
}

/// An absent lock reads as free; neither that reading, nor a renewal, a release or a cleaning
/// creates it.
fn reading_an_absent_lock_finds_it_free_and_creates_nothing<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let owner = |_: &Claim| Ownership::Shown;
    let entry = scene.list(&store)?;
    scene.same("the list of an absent lock", &entry, &Entry::default())?;
    let now = scene.now();
    let (standing, claim) = scene.standing(&store, &now)?;
    scene.same("its standing", &(standing, claim), &(Standing::Free, None))?;
    let renewed = scene.done("renewing", store.renew_owned(&scene.name, &owner, &now))?;
    scene.same("a renewal", &renewed, &RenewedOwned::Lost)?;
    let released = scene.done("releasing", store.release_owned(&scene.name, &owner, &now))?;
    scene.same("a release", &released, &Released::Absent)?;
    let cleaned = scene.done("cleaning", store.clean(&scene.name, &now, false))?;
    scene.same("what cleaning swept", &cleaned.swept, &Vec::new())?;
    scene.holds(!scene.is_listed(&store)?, || {
        "the lock is listed although no caller entered it".to_owned()
    })
}

/// The first claim is granted; the second queues behind its liveness lock; a reading shows both in
/// order, with their evidence.
fn the_first_is_granted_and_the_second_queues_behind_it<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let first = scene.granted(&one, "first")?;
    let second = scene.queued(&two, "second")?;
    scene.stands_behind(&second, first.ticket)?;
    let (entry, evidence) = scene.content(&scene.store())?;
    scene.same(
        "the tickets in the list",
        &tickets(&entry),
        &vec![first.ticket, second.ticket],
    )?;
    scene.same(
        "the tokens in the list",
        &entry
            .claims
            .iter()
            .map(|claim| claim.token)
            .collect::<Vec<_>>(),
        &vec![Some(first.token), None],
    )?;
    scene.same(
        "the liveness locks",
        &evidence
            .iter()
            .map(|seen| seen.liveness_lock)
            .collect::<Vec<_>>(),
        &vec![LivenessLock::Held, LivenessLock::Held],
    )?;
    let (standing, claim) = scene.standing(&one, &scene.now())?;
    scene.same(
        "the standing and whose it is",
        &(standing, claim.map(|claim| claim.ticket)),
        &(Standing::Held(Life::Supervised), Some(first.ticket)),
    )?;
    scene.withdraw(&two, &second)?;
    scene.release(&one, &first)
}

/// A caller that does not want to wait is refused at once, learns which claim blocks it, and changes nothing. With
/// force it asks the holder to stop.
fn asking_at_once_refuses_and_writes_nothing<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let holder = scene.granted(&one, "holder")?;
    let before = scene.list(&one)?;
    let request = Request {
        patience: Patience::AtOnce,
        ..scene.request("hasty")?
    };
    let refusal = scene.refused(&two, request)?;
    scene.same("the reason", &refusal.reason, &Reason::Held)?;
    scene.same(
        "the blocker",
        &refusal.blocker.map(|blocker| blocker.ticket),
        &Some(holder.ticket),
    )?;
    scene.is_unchanged(&two, &before)?;
    let request = Request {
        patience: Patience::AtOnce,
        force: Force::Asked,
        ..scene.request("forcing")?
    };
    scene.refused(&two, request)?;
    let list = scene.list(&one)?;
    scene.holds(list.is_cancelled(holder.ticket), || {
        format!("a caller that does not wait did not ask the holder to stop: {list:?}")
    })?;
    scene.release(&one, &holder)
}

/// Over grants, releases, deaths and waits the fencing token only rises, and so do tickets.
fn tokens_only_rise<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    // Some stores draw both from one counter, and others do not.
    let (mut last_ticket, mut last_token) = (0, 0);
    let mut rises = |what: &str, ticket: Option<u64>, token: Option<u64>| {
        let seen = format!(
            "{what} got ticket {ticket:?} and token {token:?} after {last_ticket} and {last_token}"
        );
        let ticket_rose = ticket.is_none_or(|ticket| ticket > last_ticket);
        last_ticket = ticket.unwrap_or(last_ticket);
        let token_rose = token.is_none_or(|token| token > last_token);
        last_token = token.unwrap_or(last_token);
        scene.holds(ticket_rose && token_rose, || seen)
    };
    for round in 0..3 {
        let (one, two) = (scene.store(), scene.store());
        let first = scene.granted(&one, "first")?;
        rises("a grant", Some(first.ticket), Some(first.token))?;
        let second = scene.queued(&two, "second")?;
        rises("a waiter", Some(second.ticket), None)?;
        if round == 1 {
            drop(first.handle);
        } else {
            scene.release(&one, &first)?;
        }
        let second = scene.wait(&two, second)?;
        rises("a grant after a wait", None, Some(second.token))?;
        scene.release(&two, &second)?;
        let owner = scene.harness.start_process();
        let third = scene.granted_request(&one, scene.detached("third", Some(owner))?)?;
        rises("a detached grant", Some(third.ticket), Some(third.token))?;
        scene.harness.end_process(owner);
        if one.rules().leased {
            // The death of its owner frees it only with the end of its lease.
            scene.release(&one, &third)?;
        }
    }
    let after = scene.granted(&scene.store(), "after")?;
    rises(
        "a grant after a takeover",
        Some(after.ticket),
        Some(after.token),
    )?;
    scene.holds(after.token < 1 << 53, || {
        format!("{} does not fit into 53 bits", after.token)
    })
}

/// Tokens rise although the clock went back, also over the removal of an unused lock.
fn tokens_rise_over_cleaning_and_a_clock_that_went_back<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let mut last = 0;
    for (round, back_us) in [0, 3_600_000_000, 7_200_000_000, 0].into_iter().enumerate() {
        let mut now = scene.now();
        now.wall_us = now.wall_us.saturating_sub(back_us);
        // Twice: once on the list as it is, once on one that begins anew.
        for _ in 0..2 {
            let held = scene.granted_at(&store, scene.request("again")?, &now)?;
            scene.holds(held.token > last, || {
                format!("round {round} got {} after {last}", held.token)
            })?;
            last = held.token;
            scene.release(&store, &held)?;
        }
        let cleaned = scene.done("cleaning", store.clean(&scene.name, &now, false))?;
        scene.holds(cleaned.removed, || {
            format!("cleaning an unused lock left it there: {cleaned:?}")
        })?;
        scene.holds(!scene.is_listed(&store)?, || {
            "a removed lock is listed".to_owned()
        })?;
    }
    Ok(())
}

/// The caller that entered first holds first, however many wait.
fn grants_follow_the_order_of_the_queue<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    const WAITERS: usize = 24;
    let store = scene.store();
    let holder = scene.granted(&store, "holder")?;
    let granted = Mutex::new(Vec::new());
    let mut entered = Vec::new();
    thread::scope(|threads| {
        let mut running = Vec::new();
        for number in 0..WAITERS {
            let (queued, ticket) = mpsc::channel();
            let granted = &granted;
            running.push(threads.spawn(move || {
                let store = scene.store();
                let waiting = scene.queued(&store, &format!("w{number}"))?;
                let _ = queued.send(waiting.ticket);
                let held = scene.wait(&store, waiting)?;
                locked(granted).push((held.ticket, held.token));
                scene.release(&store, &held)
            }));
            // The next one enters only after this one did; without a ticket it has failed, which
            // its own answer says below.
            entered.extend(ticket.recv());
        }
        let released = scene.release(&store, &holder);
        released.and(scene.all_joined(running))
    })?;
    let granted = locked(&granted);
    scene.same(
        "the order of grants",
        &granted
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        &entered,
    )?;
    scene.holds(granted.is_sorted_by_key(|(_, token)| *token), || {
        format!("tokens are not in the order of grants: {granted:?}")
    })
}

/// A waiter that nothing else wakes up is woken by the release, and holds then.
fn a_waiter_sleeps_until_the_release<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let store = scene.store();
    let holder = scene.granted(&store, "holder")?;
    let (queued, ready) = mpsc::channel();
    thread::scope(|threads| {
        let waiter = threads.spawn(move || {
            let store = scene.store();
            let waiting = scene.queued(&store, "waiter")?;
            let _ = queued.send(());
            let held = scene.wait(&store, waiting)?;
            scene.same("what a wait for a release reports", &held.stolen(), &None)?;
            scene.release(&store, &held)
        });
        let released = match ready.recv() {
            Ok(()) => scene.release(&store, &holder),
            Err(_) => Ok(()),
        };
        released.and(scene.joined(waiter.join()))
    })
}

/// A waiter that sleeps without a thread is called by the release. A store may know no such sleep.
fn a_parked_waiter_is_rung_by_the_release<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let holder = scene.granted(&one, "holder")?;
    let waiting = scene.queued(&two, "waiter")?;
    let has_rung = Arc::new(AtomicBool::new(false));
    let ring: Ring = {
        let has_rung = Arc::clone(&has_rung);
        Arc::new(move || has_rung.store(true, Ordering::SeqCst))
    };
    let parked = two.park_behind(&*waiting.handle, &waiting.behind, &scene.now(), &ring);
    let parked = scene.done("sleeping without a thread", parked)?;
    scene.release(&one, &holder)?;
    if parked.is_some() {
        let patience = scene.harness.patience();
        let end = instant() + patience;
        while !has_rung.load(Ordering::SeqCst) {
            scene.holds(instant() < end, || {
                format!("a waiter without a thread was not called within {patience:?}")
            })?;
            nap(LOOK);
        }
    }
    scene.takes_its_turn(&two, waiting)
}

/// A sleep with an end ends there and not before. A waiter that gives up then does not disturb the order of
/// the others, and delays none of them.
fn a_bounded_sleep_expires_and_giving_up_keeps_the_order<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let stores = [scene.store(), scene.store(), scene.store(), scene.store()];
    let [one, two, three, four] = &stores;
    let first = scene.granted(one, "first")?;
    let second = scene.queued(two, "second")?;
    let third = scene.queued(three, "third")?;
    let fourth = scene.queued(four, "fourth")?;
    // Twice, for a waiter goes back to sleep when it was woken for nothing.
    for _ in 0..2 {
        let began = instant();
        let until = began + SHORT_WAIT;
        while scene.sleep(two, &second, until)? != Wake::Expired {
            scene.holds(instant() < began + scene.harness.patience(), || {
                "a sleep does not expire".to_owned()
            })?;
        }
        let took = instant().saturating_duration_since(began);
        scene.holds(
            took >= SHORT_WAIT && took < SHORT_WAIT + scene.harness.patience(),
            || format!("a sleep of {SHORT_WAIT:?} expired after {took:?}"),
        )?;
    }
    scene.withdraw(two, &second)?;
    scene.same(
        "the list without the one that gave up",
        &tickets(&scene.list(one)?),
        &vec![first.ticket, third.ticket, fourth.ticket],
    )?;
    let third = scene.tries(three, third)?;
    scene.stands_behind(&third, first.ticket)?;
    scene.release(one, &first)?;
    scene.takes_its_turn(three, third)?;
    scene.takes_its_turn(four, fourth)
}

/// A caller that only watches is woken when the hold ends, by release or by death.
fn a_watcher_without_a_claim_is_woken_by_the_end_of_the_hold<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    for dies in [false, true] {
        let store = scene.store();
        let holder = scene.granted(&store, "holder")?;
        let (watching, ready) = mpsc::channel();
        thread::scope(|threads| {
            let watcher = threads.spawn(move || {
                let store = scene.store();
                let mut reading = scene.reading(&store)?;
                let _ = watching.send(());
                let end = instant() + scene.harness.patience();
                let free = |reading: &Reading| {
                    let now = scene.now();
                    !matches!(
                        reading.standing(&store.rules().policy, &now).0,
                        Standing::Held(_)
                    )
                };
                while !free(&reading) {
                    let woken = store.watch(&scene.name, &reading, &scene.now(), Some(end));
                    let woken = scene.done("watching", woken)?;
                    scene.same("how a watch ended", &woken, &Wake::Ready)?;
                    reading = scene.reading(&store)?;
                }
                Ok(())
            });
            let ended = match ready.recv() {
                Ok(()) if dies => {
                    drop(holder);
                    Ok(())
                }
                Ok(()) => scene.release(&store, &holder),
                Err(_) => Ok(()),
            };
            ended.and(scene.joined(watcher.join()))
        })?;
    }
    Ok(())
}

/// A live claimant looks dead at no instant: not while it enters, not while it waits, not while it leaves.
fn a_claim_that_can_be_seen_is_alive<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    const ROUNDS: usize = 150;
    let working = AtomicU64::new(2);
    thread::scope(|threads| {
        let working = &working;
        let workers = ["a", "b"].map(|id| {
            threads.spawn(move || {
                let _done = Countdown(working);
                let store = scene.store();
                for _ in 0..ROUNDS {
                    let entered = scene.enter(&store, scene.request(id)?, &scene.now())?;
                    let stolen = |event: &Event| matches!(event, Event::Stolen { .. });
                    scene.holds(!entered.events.iter().any(stolen), || {
                        format!("no claim died, and entering reports {:?}", entered.events)
                    })?;
                    let handle = scene.handle(entered.handle)?;
                    scene.done("leaving", store.release(&*handle, &scene.now()))?;
                }
                Ok(())
            })
        });
        let store = scene.store();
        let mut seen = Ok(());
        while working.load(Ordering::Relaxed) > 0 && seen.is_ok() {
            seen = scene.no_live_claim_looks_dead(&store);
        }
        seen.and(scene.all_joined(workers))
    })
}

/// Dropping a holder's handle is its death: a waiter is woken, takes over, and learns whose hold it was.
fn a_holder_that_dies_is_followed_by_the_next<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let holder = scene.granted(&store, "holder")?;
    let ticket = holder.ticket;
    let (queued, ready) = mpsc::channel();
    thread::scope(|threads| {
        let waiter = threads.spawn(move || {
            let store = scene.store();
            let waiting = scene.queued(&store, "waiter")?;
            let _ = queued.send(());
            let held = scene.wait(&store, waiting)?;
            scene.same(
                "from whom the waiter took over",
                &held.stolen(),
                &Some(ticket),
            )?;
            scene.release(&store, &held)
        });
        if ready.recv().is_ok() {
            drop(holder);
        }
        scene.joined(waiter.join())
    })?;
    // Die without a waiter: the next caller finds it.
    let holder = scene.granted(&store, "holder")?;
    let ticket = holder.ticket;
    drop(holder);
    let (standing, claim) = scene.standing(&store, &scene.now())?;
    scene.holds(matches!(standing, Standing::Stale(_)), || {
        format!("a dead hold stands as {standing:?} by {claim:?}")
    })?;
    let next = scene.granted(&scene.store(), "next")?;
    scene.same(
        "from whom the next took over",
        &next.stolen(),
        &Some(ticket),
    )
}

/// Dropping a waiter's handle is its death: the waiter behind it is woken and passes it, wherever it stood.
/// No event tells of it.
fn a_waiter_that_dies_blocks_nobody<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    for slept in [false, true] {
        let (one, two, three) = (scene.store(), scene.store(), scene.store());
        let first = scene.granted(&one, "first")?;
        let second = scene.queued(&two, "second")?;
        let third = scene.queued(&three, "third")?;
        if slept {
            // Dying after a sleep that expired is dying too.
            while scene.sleep(&two, &second, instant() + SHORT_WAIT)? != Wake::Expired {}
        }
        let dead = second.ticket;
        drop(second);
        let end = instant() + scene.harness.patience();
        let woken = scene.sleep(&three, &third, end)?;
        scene.same(
            "how the sleep behind a dead waiter ended",
            &woken,
            &Wake::Ready,
        )?;
        let third = scene.tries(&three, third)?;
        scene.stands_behind(&third, first.ticket)?;
        scene.release(&one, &first)?;
        let third = scene.wait(&three, third)?;
        scene.same("what the third took over", &third.stolen(), &None)?;
        let left = tickets(&scene.list(&one)?);
        scene.holds(!left.contains(&dead), || {
            format!("the dead waiter {dead} is still listed: {left:?}")
        })?;
        scene.release(&three, &third)?;
    }
    Ok(())
}

/// A hold whose supervisor died counts for as long as its command runs. A waiter is woken when the command
/// ends.
fn a_hold_outlives_its_supervisor_while_its_command_runs<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let supervisor = scene.harness.start_process();
    let command = scene.harness.start_process();
    let mut request = scene.request("holder")?;
    request.holder.process = Some(supervisor);
    let first = scene.granted_request(&one, request)?;
    scene.named(&one, &*first.handle, command)?;
    let ticket = first.ticket;
    scene.harness.end_process(supervisor);
    drop(first);
    if two.rules().leased {
        // The lease alone decides: a process proves nothing over a network.
        let next = scene.granted(&two, "next")?;
        scene.harness.end_process(command);
        scene.same("from whom", &next.stolen(), &Some(ticket))?;
        return scene.release(&two, &next);
    }
    let second = scene.queued(&two, "next")?;
    scene.stands_behind_record(&second, ticket)?;
    let (standing, _) = scene.standing(&two, &scene.now())?;
    scene.same("the standing", &standing, &Standing::Held(Life::Orphaned))?;
    let second = scene.tries(&two, second)?;
    scene.harness.end_process(command);
    let second = scene.wait(&two, second)?;
    scene.same("from whom", &second.stolen(), &Some(ticket))?;
    scene.release(&two, &second)
}

/// The command that a hold was taken for can be named later, and shows.
fn a_named_command_shows<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let store = scene.store();
    let command = scene.harness.start_process();
    let held = scene.granted(&store, "holder")?;
    scene.named(&store, &*held.handle, command)?;
    let entry = scene.list(&scene.store())?;
    scene.same(
        "the command",
        &entry
            .claim(held.ticket)
            .and_then(|claim| claim.holder.command),
        &Some(command),
    )?;
    scene.harness.end_process(command);
    scene.release(&store, &held)?;
    let late = store.name_command(&*held.handle, command, &scene.now());
    let late = scene.done("naming the command of a hold that ended", late)?;
    scene.same("whether a hold that ended was named", &late, &false)
}

/// Another process of the same owner takes over a hold whose keeper has died. The hold keeps its token; a waiter that
/// came in between waits until it ends.
fn a_hold_is_adopted_once_and_only_from_the_dead<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two, three) = (scene.store(), scene.store(), scene.store());
    let owner = scene.harness.start_process();
    let mut request = scene.request("holder")?;
    request.holder.process = Some(owner);
    request.holder.command = Some(owner);
    let first = scene.granted_request(&one, request)?;
    let (ticket, token) = (first.ticket, first.token);
    let owns = |claim: &Claim| {
        if claim.holder.process == Some(owner) {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    };
    let adopt = |store: &H::Store, owns: &dyn Fn(&Claim) -> Ownership| {
        let adopter = Adopter {
            owns,
            is_orphan: &|_| false,
            mark: Some(("keeper", "another".to_owned())),
        };
        let adopted = store.adopt(&scene.name, &adopter, &scene.now());
        scene.done("adopting", adopted)
    };
    let kept = adopt(&two, &owns)?;
    scene.holds(matches!(kept, Adopted::Kept), || {
        format!("a hold was adopted from a keeper that lives: {kept:?}")
    })?;
    drop(first);
    // Where a lease alone decides, the hold is free for whoever comes first.
    let early = if three.rules().leased {
        None
    } else {
        let waiting = scene.queued(&three, "next")?;
        scene.stands_behind_record(&waiting, ticket)?;
        Some(waiting)
    };
    let foreign = adopt(&two, &|_| Ownership::Missing)?;
    scene.holds(matches!(foreign, Adopted::Absent), || {
        format!("a hold of another owner was adopted: {foreign:?}")
    })?;
    let Adopted::Done { claim, handle } = adopt(&two, &owns)? else {
        return scene.holds(false, || "the hold was not adopted".to_owned());
    };
    scene.same(
        "ticket and token",
        &(claim.ticket, claim.token),
        &(ticket, Some(token)),
    )?;
    scene.same("its fact", &claim.holder.fact("keeper"), &Some("another"))?;
    let again = adopt(&one, &owns)?;
    scene.holds(matches!(again, Adopted::Kept), || {
        format!("a hold was adopted twice: {again:?}")
    })?;
    let (standing, _) = scene.standing(&one, &scene.now())?;
    scene.same("the standing", &standing, &Standing::Held(Life::Supervised))?;
    let renewed = scene.done("renewing", two.renew(&*handle, &scene.now()))?;
    let is_renewed = matches!(renewed, Renewal::Renewed { token: seen, .. } if seen == token);
    scene.holds(is_renewed, || {
        format!("an adopted hold was not renewed: {renewed:?}")
    })?;
    let waiting = match early {
        Some(waiting) => scene.tries(&three, waiting)?,
        None => scene.queued(&three, "next")?,
    };
    let left = scene.done("releasing", two.release(&*handle, &scene.now()))?;
    scene.holds(matches!(left, Left::Released { .. }), || {
        format!("an adopted hold was not released: {left:?}")
    })?;
    let next = scene.wait(&three, waiting)?;
    scene.harness.end_process(owner);
    scene.release(&three, &next)
}

/// A copy of the keeper's process, or the program that it becomes, goes on with the hold under a higher token. The keeper
/// finds it lost and gives nothing back. A waiter sleeps behind the new claim.
fn a_hold_is_handed_over_and_its_keeper_has_lost_it<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two, three) = (scene.store(), scene.store(), scene.store());
    let first = scene.granted(&one, "holder")?;
    let waiting = scene.queued(&three, "next")?;
    scene.stands_behind(&waiting, first.ticket)?;
    let process = scene.harness.start_process();
    let mut to = scene.request("copy")?.holder;
    to.process = Some(process);
    let hand_over = |is_meant: &dyn Fn(&Claim) -> bool| {
        let handed = two.hand_over(&scene.name, is_meant, &to, &scene.now());
        scene.done("handing over", handed)
    };
    let foreign = hand_over(&|_| false)?;
    scene.holds(matches!(foreign, Adopted::Absent), || {
        format!("a hold that was not meant was handed over: {foreign:?}")
    })?;
    let is_meant = |claim: &Claim| claim.token == Some(first.token);
    let Adopted::Done { claim, handle } = hand_over(&is_meant)? else {
        return scene.holds(false, || "the hold was not handed over".to_owned());
    };
    first.handle.let_go();
    let woken = scene.sleep(&three, &waiting, instant() + scene.harness.patience())?;
    scene.same("how the sleep ended", &woken, &Wake::Ready)?;
    let waiting = scene.tries(&three, waiting)?;
    scene.stands_behind(&waiting, claim.ticket)?;
    let is_higher = claim.ticket > first.ticket && claim.token > Some(first.token);
    scene.holds(is_higher, || format!("the numbers did not rise: {claim:?}"))?;
    let holder = (claim.holder.process, claim.holder.request_id.as_str());
    scene.same("its holder", &holder, &(Some(process), "copy"))?;
    let again = hand_over(&is_meant)?;
    scene.holds(matches!(again, Adopted::Absent), || {
        format!("a hold was handed over twice: {again:?}")
    })?;
    let verified = scene.done("verifying", one.verify(&*first.handle, &scene.now()))?;
    scene.same("what its keeper sees", &verified, &Renewal::Lost)?;
    let renewed = scene.done("renewing", one.renew(&*first.handle, &scene.now()))?;
    scene.same("what its keeper renews", &renewed, &Renewal::Lost)?;
    let left = scene.done("releasing", one.release(&*first.handle, &scene.now()))?;
    scene.same("what its keeper gives back", &left, &Left::Absent)?;
    drop(first);
    let (standing, _) = scene.standing(&one, &scene.now())?;
    scene.same("the standing", &standing, &Standing::Held(Life::Supervised))?;
    let renewed = scene.done("renewing", two.renew(&*handle, &scene.now()))?;
    let is_renewed =
        matches!(renewed, Renewal::Renewed { token, .. } if Some(token) == claim.token);
    scene.holds(is_renewed, || {
        format!("a hold that was handed over was not renewed: {renewed:?}")
    })?;
    let left = scene.done("releasing", two.release(&*handle, &scene.now()))?;
    scene.holds(matches!(left, Left::Released { .. }), || {
        format!("a hold that was handed over was not released: {left:?}")
    })?;
    let next = scene.wait(&three, waiting)?;
    scene.harness.end_process(process);
    scene.release(&three, &next)
}

/// A handle renews its hold while that stands. A lost or released one is told so, and nothing
/// comes into being by asking. Looking ([`Verbs::verify`]) says the same and writes nothing.
fn a_hold_is_renewed_by_its_handle_and_never_created_by_it<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let held = scene.granted(&store, "holder")?;
    let waiting = scene.queued(&store, "waiter")?;
    let fine = Renewal::Renewed {
        token: held.token,
        cancel_requested: false,
    };
    let before = scene.list(&store)?;
    let seen = scene.verified(&store, &*held.handle)?;
    scene.same("a look at a hold", &seen, &fine)?;
    scene.same("the list after a look", &scene.list(&store)?, &before)?;
    let later = later(&scene.now(), 5_000);
    let renewed = scene.done("renewing", store.renew(&*held.handle, &later))?;
    scene.same("a renewal", &renewed, &fine)?;
    scene.was_renewed(&store, held.ticket, &later)?;
    for (what, handle) in [
        ("a waiting claim", &*waiting.handle),
        ("a lost one", &*held.handle),
    ] {
        if what == "a lost one" {
            scene.withdraw(&store, &waiting)?;
            scene.release(&store, &held)?;
        }
        let before = scene.list(&store)?;
        let renewed = scene.renewed(&store, handle)?;
        scene.same(&format!("a renewal of {what}"), &renewed, &Renewal::Lost)?;
        let seen = scene.verified(&store, handle)?;
        scene.same(&format!("a look at {what}"), &seen, &Renewal::Lost)?;
        scene.is_unchanged(&store, &before)?;
    }
    scene.leave(&store, &*held.handle, &Left::Absent)?;
    // Also once nothing is left of the lock at all.
    scene.done("cleaning", store.clean(&scene.name, &scene.now(), false))?;
    let renewed = scene.renewed(&store, &*held.handle)?;
    scene.same("a renewal without a lock", &renewed, &Renewal::Lost)?;
    scene.holds(!scene.is_listed(&store)?, || {
        "a renewal created the lock".to_owned()
    })
}

/// Renewing by ownership renews the owner's hold. Another caller is told whose it is.
fn a_hold_is_renewed_by_its_owner_and_by_nobody_else<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let (owner, held) = scene.detached_hold(&store, "owner")?;
    let before = scene.list(&store)?;
    let other = store.renew_owned(&scene.name, &owned_by("other"), &scene.now());
    match scene.done("renewing", other)? {
        RenewedOwned::NotOwner { claim } => {
            scene.same("whose it is", &claim.ticket, &held.ticket)?;
        }
        answer => return Err(scene.broken(format!("another caller renewed: {answer:?}"))),
    }
    scene.is_unchanged(&store, &before)?;
    let later = later(&scene.now(), 5_000);
    let own = store.renew_owned(&scene.name, &owned_by("owner"), &later);
    match scene.done("renewing", own)? {
        RenewedOwned::Renewed { claim } => {
            scene.same("what was renewed", &claim.ticket, &held.ticket)?;
            scene.same("a request to stop", &claim.cancel, &None)?;
            scene.same("the renewal", &claim.lease.renewed, &later.stamp())?;
        }
        answer => return Err(scene.broken(format!("the owner got {answer:?}"))),
    }
    scene.was_renewed(&store, held.ticket, &later)?;
    scene.harness.end_process(owner);
    scene.release(&store, &held)?;
    let lost = store.renew_owned(&scene.name, &owned_by("owner"), &scene.now());
    let lost = scene.done("renewing", lost)?;
    scene.same("a renewal of nothing", &lost, &RenewedOwned::Lost)
}

/// Releasing another caller's hold is refused and changes nothing; the owner's release frees the
/// lock; releasing nothing says so.
fn a_release_wants_ownership<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let store = scene.store();
    let (owner, held) = scene.detached_hold(&store, "owner")?;
    let before = scene.list(&store)?;
    let other = store.release_owned(&scene.name, &owned_by("other"), &scene.now());
    match scene.done("releasing", other)? {
        Released::NotOwner { claim } => scene.same("whose it is", &claim.ticket, &held.ticket)?,
        answer => return Err(scene.broken(format!("another caller got {answer:?}"))),
    }
    scene.is_unchanged(&store, &before)?;
    let own = store.release_owned(&scene.name, &owned_by("owner"), &scene.now());
    match scene.done("releasing", own)? {
        Released::Done {
            claim, by_other, ..
        } => {
            scene.same("what was released", &claim.ticket, &held.ticket)?;
            scene.same("whether by another caller", &by_other, &false)?;
        }
        answer => return Err(scene.broken(format!("the owner got {answer:?}"))),
    }
    let again = store.release_owned(&scene.name, &owned_by("owner"), &scene.now());
    let again = scene.done("releasing", again)?;
    scene.same("a second release", &again, &Released::Absent)?;
    scene.harness.end_process(owner);
    let next = scene.granted(&store, "next")?;
    scene.same("what the next took over", &next.stolen(), &None)?;
    scene.release(&store, &next)
}

/// A detached hold counts while its owner lives, whatever its ttl says. When the owner dies, a waiter is
/// woken and takes over.
fn a_detached_hold_lives_with_its_owner<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let (owner, held) = scene.detached_hold(&one, "owner")?;
    let ticket = held.ticket;
    // The caller that acquired it ends; the hold stays.
    drop(held);
    let outlived = later(&scene.now(), 10 * TTL_MS);
    let (standing, _) = scene.standing(&two, &outlived)?;
    scene.same(
        "the standing long after the ttl",
        &standing,
        &Standing::Held(Life::Detached),
    )?;
    let waiting = scene.queued(&two, "next")?;
    if two.rules().leased {
        // The lease alone decides, whatever becomes of the owner.
        scene.harness.end_process(owner);
        scene.tries(&two, waiting)?;
        return Ok(());
    }
    scene.stands_behind_record(&waiting, ticket)?;
    thread::scope(|threads| {
        let (asleep, ready) = mpsc::channel();
        let waiter = threads.spawn(move || {
            let store = scene.store();
            let _ = asleep.send(());
            let held = scene.wait(&store, waiting)?;
            scene.same("from whom", &held.stolen(), &Some(ticket))?;
            scene.release(&store, &held)
        });
        let _ = ready.recv();
        scene.harness.end_process(owner);
        scene.joined(waiter.join())
    })
}

/// A detached hold counts until its ttl is over, and not longer, where its owner cannot be judged.
/// The same goes for one that names no owner.
fn a_detached_hold_of_a_stranger_lives_until_its_ttl<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    if scene.store().rules().leased {
        // The servers decide by their clock, which no caller hands in.
        return Ok(());
    }
    let (host, process) = scene.harness.stranger();
    for owner in [Some((host, process)), None] {
        let store = scene.store();
        let mut request = scene.detached("stranger", None)?;
        if let Some((host, process)) = owner {
            request.holder.host = host.into();
            request.holder.process = Some(process);
        }
        let held = scene.granted_request(&store, request)?;
        let granted = scene.list(&store)?;
        let since = granted.claim(held.ticket).and_then(|claim| claim.since);
        let mut now = scene.now();
        // Exactly at the ttl it still counts, one millisecond later it does not.
        if let Some(since) = since {
            now.wall_us = (since.wall_ms + TTL_MS) * 1_000;
            now.boot_ms = since.boot_ms + TTL_MS;
        }
        let hasty = || {
            Ok(Request {
                patience: Patience::AtOnce,
                ..scene.request("hasty")?
            })
        };
        let entered = scene.enter(&store, hasty()?, &now)?;
        scene.holds(matches!(entered.entering, Entering::Refused(_)), || {
            format!(
                "at its ttl a stranger's hold gave way: {:?}",
                entered.entering
            )
        })?;
        let next = scene.granted_at(&store, hasty()?, &later(&now, 1))?;
        scene.same("from whom", &next.stolen(), &Some(held.ticket))?;
        scene.release(&store, &next)?;
    }
    Ok(())
}

/// A claim that will be detached lives by its handle while it waits, whatever its owner does, and
/// by its record once it holds.
fn a_detached_waiter_dies_with_its_handle<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let store = scene.store();
    let owner = scene.harness.start_process();
    let first = scene.granted(&store, "first")?;
    let gone = scene.queued_request(&store, scene.detached("gone", Some(owner))?)?;
    let stays = scene.queued_request(&store, scene.detached("stays", Some(owner))?)?;
    scene.stands_behind(&stays, gone.ticket)?;
    drop(gone);
    scene.release(&store, &first)?;
    let held = scene.wait(&store, stays)?;
    scene.same("what it took over", &held.stolen(), &None)?;
    let ticket = held.ticket;
    drop(held);
    let next = scene.queued(&store, "next")?;
    if store.rules().leased {
        scene.harness.end_process(owner);
        return scene.stands_behind(&next, ticket);
    }
    scene.stands_behind_record(&next, ticket)?;
    scene.harness.end_process(owner);
    scene.takes_its_turn(&store, next)
}

/// A caller that lost the answer to its request asks again under the same request id. It finds that it has
/// the lock, with the same token, and nothing is written. If it waits twice, the second place is told so
/// once the first holds.
fn asking_again_under_the_same_request_id_finds_the_own_hold<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let (owner, held) = scene.detached_hold(&one, "same")?;
    let before = scene.list(&one)?;
    let again = scene.enter(&two, scene.detached("same", Some(owner))?, &scene.now())?;
    scene.same(
        "the answer to asking again",
        &again.entering,
        &Entering::Yours {
            ticket: held.ticket,
            token: held.token,
        },
    )?;
    scene.holds(again.handle.is_none(), || {
        "asking again made a second place".to_owned()
    })?;
    scene.is_unchanged(&two, &before)?;
    let other = Request {
        patience: Patience::AtOnce,
        ..scene.detached("other", Some(owner))?
    };
    scene.refused(&two, other)?;
    let first = scene.queued_request(&one, scene.detached("twice", Some(owner))?)?;
    let second = scene.queued_request(&two, scene.detached("twice", Some(owner))?)?;
    scene.release(&one, &held)?;
    let held = scene.wait(&one, first)?;
    let advanced = scene.tried(&two, &*second.handle)?;
    scene.same(
        "what the second place is told",
        &advanced.grant,
        &TryGrant::Yours {
            ticket: held.ticket,
            token: held.token,
        },
    )?;
    scene.withdraw(&two, &second)?;
    scene.release(&one, &held)?;
    scene.harness.end_process(owner);
    Ok(())
}

/// A request to stop shows in the target's renewal and in no other. It lets no caller in before the target
/// has left, and is gone with it.
fn a_request_to_stop_reaches_its_target_and_nobody_else<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let stores = [scene.store(), scene.store(), scene.store()];
    let [one, two, three] = &stores;
    let target = scene.granted(one, "target")?;
    let between = scene.queued(two, "between")?;
    let forced = Request {
        force: Force::Asked,
        ..scene.request("forcing")?
    };
    let entered = scene.enter(three, forced, &scene.now())?;
    scene.same(
        "what asking to stop reports",
        &entered.events,
        &vec![Event::CancelRequested {
            ticket: target.ticket,
        }],
    )?;
    let forcing = scene.placed(entered)?;
    let asked = |store: &H::Store, handle: &dyn Handle, what| match scene
        .done("renewing", store.renew(handle, &scene.now()))?
    {
        Renewal::Renewed {
            cancel_requested, ..
        } => Ok(cancel_requested),
        Renewal::Lost => Err(scene.broken(format!("{what} is lost"))),
    };
    scene.same(
        "whether the target is asked",
        &asked(one, &*target.handle, "the target")?,
        &true,
    )?;
    let seen = scene.verified(one, &*target.handle)?;
    scene.holds(
        matches!(
            seen,
            Renewal::Renewed {
                cancel_requested: true,
                ..
            }
        ),
        || format!("a look at the target says {seen:?}"),
    )?;
    let between = scene.tries(two, between)?;
    scene.release(one, &target)?;
    let asked_still = scene.list(one)?.claims;
    let asked_still = asked_still.iter().any(|claim| claim.cancel.is_some());
    scene.same(
        "whether anything is left of the request",
        &asked_still,
        &false,
    )?;
    let between = scene.wait(two, between)?;
    scene.same(
        "whether the next holder is asked",
        &asked(two, &*between.handle, "the one between")?,
        &false,
    )?;
    scene.release(two, &between)?;
    let forcing = scene.wait(three, forcing)?;
    scene.same(
        "whether the caller itself is asked",
        &asked(three, &*forcing.handle, "the caller")?,
        &false,
    )?;
    scene.release(three, &forcing)
}

/// Force alone does not override a detached hold; force with a second yes does, loudly, and the
/// old holder learns that it has lost.
fn force_overrides_a_detached_hold_only_when_confirmed<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (one, two) = (scene.store(), scene.store());
    let (owner, held) = scene.detached_hold(&one, "owner")?;
    let before = scene.list(&one)?;
    let forced = |force| {
        Ok(Request {
            force,
            ..scene.request("forcing")?
        })
    };
    let refusal = scene.refused(&two, forced(Force::Asked)?)?;
    scene.same("the reason", &refusal.reason, &Reason::NeedsConfirmation)?;
    scene.is_unchanged(&two, &before)?;
    let entered = scene.enter(&two, forced(Force::Confirmed)?, &scene.now())?;
    let loud = entered.events.iter().any(|event| {
        matches!(event, Event::Stolen { why: Takeover::Active, previous: Some(previous), .. }
            if previous.ticket == held.ticket)
    });
    scene.holds(loud, || format!("an override reports {:?}", entered.events))?;
    let next = scene.holding(entered)?;
    scene.holds(next.token > held.token, || {
        format!("the override got {} after {}", next.token, held.token)
    })?;
    let before = scene.list(&one)?;
    let renewed = scene.renewed(&one, &*held.handle)?;
    scene.same("what the old handle is told", &renewed, &Renewal::Lost)?;
    let renewed = one.renew_owned(&scene.name, &owned_by("owner"), &scene.now());
    let renewed = scene.done("renewing", renewed)?;
    scene.holds(
        matches!(&renewed, RenewedOwned::NotOwner { claim } if claim.ticket == next.ticket),
        || format!("the old owner is told {renewed:?}"),
    )?;
    scene.leave(&one, &*held.handle, &Left::Absent)?;
    scene.is_unchanged(&one, &before)?;
    scene.harness.end_process(owner);
    scene.release(&two, &next)
}

/// Cleaning removes dead claims, wherever they stand, and leaves live ones alone; a dry run says
/// the same and changes nothing; a lock without claims is removed.
fn cleaning_removes_what_is_dead_and_nothing_else<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let clean = |dry_run| {
        let cleaned = store.clean(&scene.name, &scene.now(), dry_run);
        let cleaned = scene.done("cleaning", cleaned)?;
        let swept: Vec<u64> = cleaned.swept.iter().map(|claim| claim.ticket).collect();
        Ok((swept, cleaned.removed))
    };
    let holder = scene.granted(&store, "holder")?;
    let dead = scene.queued(&store, "dead")?;
    let waiting = scene.queued(&store, "waiting")?;
    let dead_ticket = dead.ticket;
    drop(dead);
    let before = scene.list(&store)?;
    let swept = (vec![dead_ticket], false);
    let dry = clean(true)?;
    let after = scene.list(&store)?;
    if after.claim(dead_ticket).is_some() {
        scene.same("a dry run", &dry, &swept)?;
        scene.same("the list after a dry run", &after, &before)?;
        scene.same("a cleaning", &clean(false)?, &swept)?;
    } else {
        // A store may remove the claim of a dropped handle by itself, as one on servers does where it cannot
        // know whether an earlier request still comes.
        scene.same("a cleaning", &clean(false)?, &(Vec::new(), false))?;
    }
    scene.same(
        "what a cleaning leaves",
        &tickets(&scene.list(&store)?),
        &vec![holder.ticket, waiting.ticket],
    )?;
    scene.same("a second cleaning", &clean(false)?, &(Vec::new(), false))?;
    scene.release(&store, &holder)?;
    let held = scene.wait(&store, waiting)?;
    let ticket = held.ticket;
    drop(held);
    let expected = (vec![ticket], true);
    scene.same("a dry run over a dead hold", &clean(true)?, &expected)?;
    scene.holds(scene.is_listed(&store)?, || {
        "a dry run removed the lock".to_owned()
    })?;
    scene.same("a cleaning of a dead hold", &clean(false)?, &expected)?;
    scene.holds(!scene.is_listed(&store)?, || {
        "the lock is still listed".to_owned()
    })?;
    scene.same("what is left", &scene.list(&store)?, &Entry::default())
}

/// Every lock that was used is shown, once.
fn names_shows_every_lock_once<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    let store = scene.store();
    let mut names = Vec::new();
    let mut handles = Vec::new();
    for _ in 0..5 {
        let name = scene.harness.name();
        let entered = store.enter(&name, scene.request("holder")?, &scene.now());
        handles.extend(scene.done("entering", entered)?.handle);
        names.push(name);
    }
    let mut shown = Vec::new();
    let listed = scene
        .harness
        .store()
        .names(Which::Locks, &mut |name| shown.push(name));
    scene.done("listing", listed)?;
    for name in &names {
        let times = shown.iter().filter(|shown| *shown == name).count();
        scene.holds(times == 1, || format!("{name} is shown {times} times"))?;
    }
    scene.same("how many handles there are", &handles.len(), &names.len())
}

/// A holder and its heartbeat use one handle from two threads. No change of theirs, or of another caller,
/// gets lost over that.
fn a_handle_serves_two_threads_at_once<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    const ROUNDS: u32 = 300;
    let store = scene.store();
    let held = scene.granted(&store, "holder")?;
    thread::scope(|threads| {
        let held = &held;
        // Each of the two alone changes one field, and has to find there what it wrote last.
        let renewing = threads.spawn(move || {
            let store = scene.store();
            let began = scene.now();
            for round in 0..ROUNDS {
                let now = later(&began, u64::from(round));
                let renewed = store.renew(&*held.handle, &now);
                let renewed = scene.done("renewing", renewed)?;
                scene.holds(renewed != Renewal::Lost, || "a hold is lost".to_owned())?;
                let entry = scene.list(&store)?;
                let claim = entry.claim(held.ticket);
                let seen = claim.map(|claim| claim.lease.renewed);
                scene.same("the last renewal", &seen, &Some(now.stamp()))?;
            }
            Ok(())
        });
        let naming = threads.spawn(move || {
            let store = scene.store();
            for pid in 1..ROUNDS {
                let command = Process { pid, started: None };
                scene.named(&store, &*held.handle, command)?;
                let entry = scene.list(&store)?;
                let claim = entry.claim(held.ticket);
                let seen = claim.and_then(|claim| claim.holder.command);
                scene.same("the last named command", &seen, &Some(command))?;
            }
            Ok(())
        });
        let others = threads.spawn(move || {
            let store = scene.store();
            for _ in 0..ROUNDS {
                let waiting = scene.queued(&store, "waiter")?;
                scene.withdraw(&store, &waiting)?;
            }
            Ok(())
        });
        Ok(()).and(scene.all_joined([renewing, naming, others]))
    })?;
    scene.same(
        "the list afterwards",
        &tickets(&scene.list(&store)?),
        &vec![held.ticket],
    )?;
    scene.release(&store, &held)
}

/// Four callers that want the same lock four hundred times never hold it at the same time: what
/// they count together comes out right although the counter itself protects nothing.
fn two_never_hold_at_once<H: Harness>(scene: &Scene<'_, H>) -> Result<(), Broken> {
    const CALLERS: u64 = 4;
    const ROUNDS: u64 = 100;
    // Read and written in separate steps: a second holder in between loses a count.
    let counter = AtomicU64::new(0);
    let last_token = AtomicU64::new(0);
    let occupied = AtomicBool::new(false);
    thread::scope(|threads| {
        let (counter, last_token, occupied) = (&counter, &last_token, &occupied);
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                threads.spawn(move || {
                    let store = scene.store();
                    let request = scene.request(&format!("caller-{caller}"))?;
                    for _ in 0..ROUNDS {
                        let wait = Wait::For(6 * scene.harness.patience());
                        let clock = &scene.clock;
                        let name = &scene.name;
                        let acquired = engine::acquire(
                            &store,
                            clock,
                            name,
                            request.clone(),
                            wait,
                            &mut Silent,
                        );
                        let acquired = scene.done("acquiring", acquired)?;
                        let handle = scene.handle(acquired.handle)?;
                        let token = acquired.claim.token.unwrap_or_default();
                        let alone = !occupied.swap(true, Ordering::Relaxed);
                        let rises = last_token.load(Ordering::Relaxed) < token;
                        last_token.store(token, Ordering::Relaxed);
                        let seen = counter.load(Ordering::Relaxed);
                        thread::yield_now();
                        counter.store(seen + 1, Ordering::Relaxed);
                        occupied.store(false, Ordering::Relaxed);
                        scene.holds(alone, || "two callers held at once".to_owned())?;
                        scene.holds(rises, || format!("token {token} is not above the last"))?;
                        scene.leave_hold(&store, &*handle)?;
                    }
                    Ok(())
                })
            })
            .collect();
        Ok(()).and(scene.all_joined(callers))
    })?;
    scene.same(
        "the count",
        &counter.load(Ordering::Relaxed),
        &(CALLERS * ROUNDS),
    )
}
