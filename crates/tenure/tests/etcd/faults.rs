//! The store behind a network that fails at the worst moments. It keeps every promise, and callers that
//! take turns through it never overlap while they may rely on what they hold.
//!
//! `TENURE_ETCD=long` runs more seeds, for longer; `TENURE_ETCD_SEED=N` runs one.

use super::proxy::{Dice, Fault, Proxy, Rates, Weather};
use super::server::Server;
use super::{
    Callers, ClaimHandle, caller, claims, hold_twice, is_long, keeps_every_promise_but, line_up,
    name, now, request, take, until, wait,
};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure::store::Verbs;
use tenure::store::conformance;
use tenure::store::contract::Which;
use tenure::store::etcd::EtcdStore;
use tenure::store::{Store, StoreError};
use tenure_core::{
    Claim, Entering, Entry, Force, Forced, Kind, Left, LockName, Predecessor, Renewal, Request,
    TryGrant,
};
use tenure_os::clock::instant;

/// How often faults strike: a call is struck now and then, and its patience suffices.
const RATES: Rates = Rates {
    cut_before: 80,
    cut_after: 80,
    delay: 200,
    swallow: 3,
    late: 5,
};

/// How often faults strike where a call may also fail.
const STORM: Rates = Rates {
    cut_before: 250,
    cut_after: 250,
    delay: 400,
    swallow: 20,
    late: 40,
};

fn seeds(usual: &[u64]) -> Vec<u64> {
    let told = std::env::var("TENURE_ETCD_SEED").ok();
    match told.and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None if is_long() => (1..=20).collect(),
        None => usual.to_vec(),
    }
}

/// A dropped handle whose last request may still be on its way also removes its claim from the list. So
/// a late request cannot make the claim hold again. Then the next caller finds no dead hold: it takes
/// over from no claim, and there is nothing to clean. Without a network that fails this is never so, and
/// the same promises are kept to the letter (`the_etcd_store_keeps_every_promise`).
fn was_removed_by_its_own_store(broken: &conformance::Broken) -> bool {
    let (what, saw) = (broken.what.as_str(), |said| broken.what.ends_with(said));
    match broken.promise {
        "a_holder_that_dies_is_followed_by_the_next" => {
            what.starts_with("from whom the waiter took over: expected Some(") && saw("saw None")
        }
        "cleaning_removes_what_is_dead_and_nothing_else" => {
            let cleans = ["a dry run", "a cleaning"]
                .iter()
                .any(|did| what.starts_with(did));
            cleans && (saw("saw ([], true)") || saw("saw ([], false)"))
        }
        _ => false,
    }
}

#[test]
fn every_promise_is_kept_behind_a_network_that_fails() {
    let server = Server::start();
    for seed in seeds(&[7]) {
        let proxy = Proxy::to(server.port());
        proxy.at_random(seed, RATES);
        println!("seed {seed}");
        let callers = Callers::at(proxy.address(&format!("faults-{seed}")));
        // A ping finds a watch on a connection that swallows everything: six seconds until it is sent,
        // three until it is missed.
        let callers = callers.patient(Duration::from_secs(40));
        keeps_every_promise_but(&callers, was_removed_by_its_own_store);
        let (requests, struck) = proxy.counts();
        println!("seed {seed}: {struck} of {requests} requests were struck");
        assert!(struck > 10, "the network was too kind to prove anything");
    }
}

/// A caller finds the lock held, and another one queues before it does. It waits behind that one: the end of
/// the hold does not wake it.
#[test]
fn a_caller_that_finds_a_hold_waits_behind_the_claim_directly_before_its_own() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, two) = (
        caller(&server.address("behind")),
        caller(&proxy.address("behind")),
    );
    let name = name("behind");
    let ttl = Duration::from_secs(600);
    let (_held, _) = take(&one, &name, "holder", ttl);
    let late = Fault::Delay(Duration::from_secs(1));
    proxy.strike("\"tenure\":1", late);
    std::thread::scope(|scope| {
        let last = scope.spawn(|| line_up(&two, &name, "last", ttl));
        until("its request is under way", ttl, || proxy.has_struck());
        let (first, _) = line_up(&one, &name, "first", ttl);
        let (last, behind) = last.join().expect("a place in the queue");
        assert!(first.ticket() < last.ticket(), "it came later");
        let ticket = first.ticket();
        assert_eq!(behind, Predecessor::LivenessLock { ticket });
    });
}

/// The tombstone of an attempt outlasts its lock. It does not count as one: a caller that lists the locks would
/// see one that no call can clean.
#[test]
fn a_tombstone_is_not_listed_as_a_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let one = caller(&proxy.address("buried"));
    let name = name("buried");
    let ttl = Duration::from_secs(600);
    // etcd never gets the first attempt, which is buried. The second one holds.
    proxy.strike(&format!("{name}/claims/"), Fault::CutBefore);
    let (handle, _) = take(&one, &name, "one", ttl);
    assert!(proxy.has_struck());
    let left = one.release(&*handle, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    let listed = || {
        let mut listed = Vec::new();
        let names = one.names(Which::Locks, &mut |name| listed.push(name));
        names.expect("an answer");
        listed
    };
    assert_eq!(listed(), std::slice::from_ref(&name), "its history is kept");
    let cleaned = one.clean(&name, &now(), false).expect("an answer");
    assert!(cleaned.removed, "{cleaned:?}");
    assert_eq!(listed(), [], "nothing is left of it");
}

/// A hold, as only its holder has seen it.
#[derive(Debug, Clone)]
struct Witnessed {
    who: usize,
    token: u64,
    /// When its holder was told.
    told: Instant,
    /// Until when its holder relied on it: it left, or could not be certain any more.
    relied: Instant,
    /// The instants at which renewals began that were answered with *renewed*.
    renewed: Vec<Instant>,
    /// Whether the holder was told that the hold is lost.
    lost: bool,
}

/// A caller of the workload.
struct Worker<'a> {
    who: usize,
    store: EtcdStore,
    proxy: &'a Proxy,
    name: &'a LockName,
    ttl: Duration,
    dice: Dice,
    witnessed: &'a Mutex<Vec<Witnessed>>,
    unreachable: &'a AtomicU64,
}

impl Worker<'_> {
    /// Counts the errors that may happen in this weather, and accepts no other.
    fn answer<T>(&self, doing: &str, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(StoreError::Unreachable { .. }) => {
                self.unreachable.fetch_add(1, Ordering::SeqCst);
                None
            }
            Err(other) => panic!("{doing} failed in a way that no network makes: {other}"),
        }
    }

    /// Enters and waits. With the hold comes the moment from which it counts.
    fn acquire(&mut self, number: u64) -> Option<(ClaimHandle, u64, Instant)> {
        let request = request(&format!("{}-{number}", self.who), self.ttl);
        let entered = self.answer("entering", self.store.enter(self.name, request, &now()))?;
        let handle = entered.handle;
        let from =
            |entry: &Entry, handle: &ClaimHandle| entry.claim(handle.ticket()).map(certain_from);
        let mut behind = match entered.entering {
            Entering::Granted { token, .. } => {
                let handle = handle?;
                let began = from(&entered.entry, &handle)?;
                return Some((handle, token, began));
            }
            Entering::Queued { behind, .. } => behind,
            other => panic!("a request that queues was answered {other:?}"),
        };
        let handle = handle?;
        let end = instant() + Duration::from_secs(60);
        while instant() < end {
            let wake = self.store.sleep(&*handle, &behind, &now(), Some(end));
            self.answer("sleeping", wake)?;
            let advanced = self.answer("looking", self.store.try_grant(&*handle, &now()))?;
            match advanced.grant {
                TryGrant::Granted { token } => {
                    let began = from(&advanced.entry, &handle)?;
                    return Some((handle, token, began));
                }
                TryGrant::Behind(now_behind) => behind = now_behind,
                // The lease ran out in the queue, and another caller swept the claim.
                TryGrant::Gone => return None,
                other => panic!("a waiter was answered {other:?}"),
            }
        }
        panic!("caller {} has waited for a minute", self.who);
    }

    /// Works under a hold, now and then cut off for longer than its lease.
    fn work(&mut self, handle: ClaimHandle, token: u64, began: Instant) {
        let lapses = self.store.rules().lapse(self.ttl).expect("leases run out");
        let mut seen = Witnessed {
            who: self.who,
            token,
            told: instant(),
            relied: began + lapses,
            renewed: Vec::new(),
            lost: false,
        };
        let kind = self.dice.below(100);
        if kind < 3 {
            // Cut off while it works: it may rely on the lease, and on nothing longer.
            self.proxy.weather(Weather::Parted);
            std::thread::sleep(
                self.ttl
                    + self.ttl.mul_f32(0.1) * u32::try_from(self.dice.below(10)).expect("small"),
            );
            self.proxy.weather(Weather::Fair);
            let asked = instant();
            match self.answer("renewing", self.store.renew(&*handle, &now())) {
                Some(Renewal::Renewed { .. }) => {
                    seen.renewed.push(asked);
                    seen.relied = asked.max(seen.relied);
                }
                Some(Renewal::Lost) => seen.lost = true,
                None => {}
            }
        } else {
            std::thread::sleep(Duration::from_millis(self.dice.below(6)));
        }
        let ends = instant();
        if seen.renewed.is_empty() {
            seen.relied = seen.relied.min(ends);
        }
        let (relied, was_lost) = (seen.relied, seen.lost);
        self.witnessed.lock().expect("no panic").push(seen);
        if kind >= 95 {
            // The caller dies.
            drop(handle);
            return;
        }
        let left = self.answer("leaving", self.store.release(&*handle, &now()));
        // A caller that took longer than the lease cannot know whether the claim was an earlier try of
        // its own.
        let took = instant().saturating_duration_since(ends);
        if let Some(left) = left
            && relied >= ends + took
            && !was_lost
        {
            assert!(
                matches!(left, Left::Released { .. }),
                "caller {} left a hold within its lease, and was told {left:?}",
                self.who
            );
        }
    }
}

#[test]
fn callers_behind_networks_that_fail_take_turns() {
    let server = Server::start();
    let time = Duration::from_secs(if is_long() { 120 } else { 15 });
    for seed in seeds(&[3]) {
        take_turns(&server, seed, 6, time);
    }
}

fn take_turns(server: &Server, seed: u64, callers: usize, time: Duration) {
    let ttl = Duration::from_secs(2);
    let name = LockName::new(format!("turns-{seed}")).expect("a name");
    let witnessed = Mutex::new(Vec::new());
    let unreachable = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let proxies: Vec<Proxy> = (0..callers).map(|_| Proxy::to(server.port())).collect();
    std::thread::scope(|scope| {
        for (who, proxy) in proxies.iter().enumerate() {
            let number = seed * 1_000 + who as u64;
            proxy.at_random(number, STORM);
            let mut worker = Worker {
                who,
                store: caller(&proxy.address("turns")),
                proxy,
                name: &name,
                ttl,
                dice: Dice::new(number),
                witnessed: &witnessed,
                unreachable: &unreachable,
            };
            let over = &over;
            scope.spawn(move || {
                let mut number = 0;
                while !over.load(Ordering::SeqCst) {
                    number += 1;
                    if let Some((handle, token, began)) = worker.acquire(number) {
                        worker.work(handle, token, began);
                    }
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::SeqCst);
    });
    let struck: u64 = proxies.iter().map(|proxy| proxy.counts().1).sum();
    let mut holds = witnessed.into_inner().expect("no panic");
    let errors = unreachable.into_inner();
    println!(
        "seed {seed}: {} holds, {struck} requests struck, {errors} calls unreachable, {} lost",
        holds.len(),
        holds.iter().filter(|hold| hold.lost).count()
    );
    for proxy in &proxies {
        proxy.clear_up();
    }
    assert!(holds.len() > 10, "hardly any caller held: {}", holds.len());
    assert!(struck > 10, "the network was too kind to prove anything");
    judge(&mut holds);

    // No caller is left, so the next one gets the lock as soon as the last lease has run out.
    let late = caller(&server.address("turns"));
    let began = instant();
    until("a new caller holds", Duration::from_secs(30), || {
        let entered = late.enter(&name, request("late", ttl), &now());
        let entered = entered.expect("an etcd that nothing is between");
        matches!(entered.entering, Entering::Granted { .. })
    });
    let took = instant().saturating_duration_since(began);
    assert!(
        took < ttl * 3,
        "a claim without a caller blocks for longer than its lease: {took:?}"
    );
}

/// No two callers relied on it at once, tokens rise, and no caller was told that it still holds what
/// another one had got.
fn judge(holds: &mut [Witnessed]) {
    holds.sort_by_key(|hold| hold.told);
    for pair in holds.windows(2) {
        let [one, other] = pair else { continue };
        assert!(
            one.relied <= other.told,
            "two relied on the lock at once, for {:?}:\n{one:?}\n{other:?}",
            one.relied.saturating_duration_since(other.told)
        );
        assert!(
            one.token < other.token,
            "from caller {} to {} a token did not rise:\n{one:?}\n{other:?}",
            one.who,
            other.who
        );
    }
    let by_token: BTreeMap<u64, &Witnessed> = holds.iter().map(|hold| (hold.token, hold)).collect();
    for hold in holds.iter() {
        let next = by_token.range(hold.token + 1..).next();
        for renewed in &hold.renewed {
            assert!(
                next.is_none_or(|(_, next)| next.told >= *renewed),
                "a loss was not told:\n{hold:?}\n{next:?}"
            );
        }
    }
}

/// A verb, a call that runs it, and the answer that it has to give although its first answer got lost.
struct Lost<'a> {
    verb: &'a str,
    /// Text that only the decisive request contains, and how many requests with that text come before
    /// it.
    strikes: (u32, String),
}

/// While `call` runs, loses the answer of one request, or the request itself; and then also those of the
/// next requests with the same text.
fn with<T>(proxy: &Proxy, faults: &[Fault], lost: &Lost<'_>, call: impl FnOnce() -> T) -> T {
    let (spared, text) = &lost.strikes;
    for (index, fault) in faults.iter().enumerate() {
        proxy.strike_after(if index == 0 { *spared } else { 0 }, text, *fault);
    }
    let answer = call();
    assert!(proxy.has_struck(), "{}: nothing was struck", lost.verb);
    answer
}

/// Each verb reports what it did, although the answer to its one write never came. If etcd never got the
/// write, the verb does it after all. The same holds if the next try fails too.
#[test]
fn a_lost_answer_is_found_out() {
    every_verb_finds_out(&[
        &[Fault::CutAfter],
        &[Fault::CutBefore],
        &[Fault::CutBefore, Fault::CutAfter],
        &[Fault::CutBefore, Fault::CutBefore],
    ]);
}

/// A verb that succeeded by another request is not undone, although etcd still gets the first one.
#[test]
fn a_request_that_comes_late_undoes_nothing() {
    every_verb_finds_out(&[&[Fault::Late(Duration::from_millis(2_500))]]);
}

#[allow(
    clippy::too_many_lines,
    reason = "one verb after the other, each on what the ones before have left"
)]
fn every_verb_finds_out(rounds: &[&[Fault]]) {
    let server = Server::start();
    for (round, faults) in rounds.iter().enumerate() {
        let proxy = Proxy::to(server.port());
        let one = caller(&proxy.address("lost"));
        let two = caller(&server.address("lost"));
        let name = name(&format!("lost-{round}"));
        let ttl = Duration::from_secs(60);
        // Only a write of a claim contains the claim's first line.
        let written = |verb| Lost {
            verb,
            strikes: (0, "\"tenure\":1".to_owned()),
        };
        let removed = |verb, spared| Lost {
            verb,
            strikes: (spared, format!("{name}/claims/")),
        };
        let done = "a call that only lost an answer";

        let (handle, token) = with(&proxy, faults, &written("enter"), || {
            take(&one, &name, "holder", ttl)
        });
        assert_eq!(claims(&two, &name).len(), 1, "one claim was made");
        // The second one is tried on the hold as the first one has left it.
        for renew in ["renew", "renew again"] {
            let renewed = with(&proxy, faults, &written(renew), || {
                one.renew(&*handle, &now())
            });
            assert!(
                matches!(renewed, Ok(Renewal::Renewed { .. })),
                "{renew}: {renewed:?}"
            );
            one.renew(&*handle, &now()).expect("an answer");
        }
        let process = tenure_core::Process {
            pid: std::process::id(),
            started: None,
        };
        let named = with(&proxy, faults, &written("name_command"), || {
            one.name_command(&*handle, process, &now())
        });
        assert!(named.expect(done), "the command was named");
        let waiting = tenure_core::WaitingFor {
            place: "elsewhere".to_owned(),
            name: "other".to_owned(),
            ticket: 7,
        };
        let noted = with(&proxy, faults, &written("note_waiting"), || {
            one.note_waiting(&name, token, Some(&waiting), &now())
        });
        assert!(noted.expect(done), "the note was written");
        let asked = with(&proxy, faults, &written("cancel"), || {
            one.cancel(&name, "somebody".into(), None, &now())
        });
        assert_eq!(asked.expect(done).len(), 1, "the holder was asked to stop");
        let shown = |claim: &Claim| {
            if claim.token == Some(token) {
                tenure_core::Ownership::Shown
            } else {
                tenure_core::Ownership::Missing
            }
        };
        let renewed = with(&proxy, faults, &written("renew_owned"), || {
            one.renew_owned(&name, &shown, &now())
        });
        let renewed = renewed.expect(done);
        assert!(
            matches!(renewed, tenure::store::RenewedOwned::Renewed { .. }),
            "{renewed:?}"
        );

        // A waiter behind it, through the same proxy.
        let (waiter, behind) = with(&proxy, faults, &written("enter in a queue"), || {
            line_up(&one, &name, "waiter", ttl)
        });
        assert_eq!(claims(&two, &name).len(), 2, "one more claim was made");
        let parked = with(&proxy, faults, &written("park"), || {
            one.reserve(&*waiter, None, 60_000, &now(), None)
        });
        assert!(parked.expect(done), "its place is kept");
        drop((waiter, behind));
        let (other, behind) = line_up(&one, &name, "other", ttl);
        let left = with(&proxy, faults, &removed("leave a queue", 1), || {
            one.release(&*other, &now())
        });
        assert_eq!(left.expect(done), Left::Withdrawn);
        drop(behind);
        let (next, behind) = line_up(&one, &name, "next", ttl);

        let left = with(&proxy, faults, &removed("leave", 0), || {
            one.release(&*handle, &now())
        });
        assert!(matches!(left, Ok(Left::Released { .. })), "{left:?}");
        let next_token = with(&proxy, faults, &written("try_grant"), || {
            wait(&one, &next, behind, Duration::from_secs(20))
        });
        assert!(next_token > token, "the token rises");
        let held = claims(&two, &name)
            .iter()
            .filter(|claim| claim.token.is_some())
            .count();
        assert_eq!(held, 1, "one holds");
        let mine = |claim: &Claim| {
            if claim.token == Some(next_token) {
                tenure_core::Ownership::Shown
            } else {
                tenure_core::Ownership::Missing
            }
        };
        let released = with(&proxy, faults, &removed("release_owned", 0), || {
            one.release_owned(&name, &mine, &now())
        });
        let released = released.expect(done);
        assert!(
            matches!(released, tenure_core::Released::Done { .. }),
            "{released:?}"
        );

        let dead = caller(&server.address("lost"));
        let (handle, _) = take(&dead, &name, "dead", ttl);
        drop((handle, dead));
        let cleaned = with(&proxy, faults, &removed("clean", 0), || {
            one.clean(&name, &now(), false)
        });
        let cleaned = cleaned.expect(done);
        assert_eq!(
            cleaned.swept.len(),
            1,
            "the dead claim was swept: {cleaned:?}"
        );

        let mut detached = request("detached", ttl);
        detached.kind = Kind::Detached;
        let entered = with(&proxy, faults, &written("enter detached"), || {
            one.enter(&name, detached, &now())
        });
        let entered = entered.expect(done);
        assert!(
            matches!(entered.entering, Entering::Granted { .. }),
            "{:?}",
            entered.entering
        );
        let forced = with(&proxy, faults, &removed("force_release", 0), || {
            one.force_release(&name, Force::Confirmed, &now())
        });
        let forced = forced.expect(done).released;
        assert!(
            matches!(forced, Forced::Done { claim: Some(_), .. }),
            "{forced:?}"
        );
    }
}

/// A caller gives up while the fate of its claim is unknown. It leaves nothing behind that others would
/// have to wait for, although its process goes on and keeps its lease alive.
#[test]
fn a_claim_that_was_given_up_blocks_nobody() {
    give_up(|_, _| {});
}

/// A claim whose names were another claim's before is given up like any other.
#[test]
fn a_claim_on_a_lock_that_was_left_before_is_given_up_like_any_other() {
    give_up(hold_twice);
}

/// A caller that was told that its hold is lost has nothing to release, whatever happens to the answer.
#[test]
fn a_hold_that_was_overridden_is_not_said_to_be_released_where_an_answer_is_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let one = caller(&proxy.address("overridden"));
    let two = caller(&server.address("overridden"));
    for (round, asks) in ["renew", "verify"].into_iter().enumerate() {
        let name = name(&format!("overridden-{round}"));
        let detached = Request {
            kind: Kind::Detached,
            ..request("one", Duration::from_secs(60))
        };
        let entered = one.enter(&name, detached, &now()).expect("an answer");
        let handle = entered.handle.expect("a free lock");
        let forced = two.force_release(&name, Force::Confirmed, &now());
        let forced = forced.expect("an answer").released;
        assert!(matches!(forced, Forced::Done { .. }), "{forced:?}");
        let told = match asks {
            "renew" => one.renew(&*handle, &now()),
            _ => one.verify(&*handle, &now()),
        };
        assert_eq!(told.expect("an answer"), Renewal::Lost, "{asks}");
        proxy.strike(&format!("{name}/claims/"), Fault::CutAfter);
        let left = one.release(&*handle, &now()).expect("an answer");
        assert_eq!(left, Left::Absent, "{asks}");
    }
}

fn give_up(before: impl Fn(&EtcdStore, &LockName)) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let two = caller(&server.address("given-up"));
    let ttl = Duration::from_secs(600);
    let hasty = || caller(&proxy.address("given-up")).patience(Duration::from_millis(1_500));

    // The request is carried out, and from then on every connection is refused.
    let one = hasty();
    let name_one = name("carried-out");
    take(&one, &name("first"), "warm", ttl);
    before(&one, &name_one);
    proxy.strike(&format!("{name_one}/claims/"), Fault::LastWord);
    let gave_up = one.enter(&name_one, request("one", ttl), &now());
    assert!(
        matches!(gave_up, Err(StoreError::Unreachable { .. })),
        "no caller can know that it holds: {gave_up:?}"
    );
    assert_eq!(claims(&two, &name_one).len(), 1, "the claim is there");
    proxy.weather(Weather::Fair);
    until("it is taken back", Duration::from_secs(30), || {
        claims(&two, &name_one).is_empty()
    });
    drop(take(&two, &name_one, "two", ttl));

    // The request is carried out after the caller has given up.
    let name_two = name("late");
    before(&one, &name_two);
    proxy.strike(
        &format!("{name_two}/claims/"),
        Fault::Late(Duration::from_secs(5)),
    );
    let gave_up = one.enter(&name_two, request("one", ttl), &now());
    assert!(
        matches!(gave_up, Err(StoreError::Unreachable { .. })),
        "{gave_up:?}"
    );
    until("it comes late", Duration::from_secs(20), || {
        proxy.late() == 1
    });
    // The request has been carried out by now. A claim that it had made would be alive.
    assert_eq!(claims(&two, &name_two), Vec::new(), "nothing was made");
    drop(take(&two, &name_two, "two", ttl));
}

/// The answer to a first try never came, because etcd had not received it. The second try was granted,
/// worked, and left. Then the first one arrives.
#[test]
fn a_request_that_arrives_after_its_hold_has_ended_makes_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, two) = (
        caller(&proxy.address("stray")),
        caller(&server.address("stray")),
    );
    let ttl = Duration::from_secs(600);
    let (leaves, stays) = (name("leaves"), name("stays"));
    take(&one, &name("first"), "warm", ttl);
    for (name, number) in [(&leaves, 1), (&stays, 2)] {
        proxy.strike(
            &format!("{name}/claims/"),
            Fault::Late(Duration::from_secs(4)),
        );
        let (handle, token) = take(&one, name, "one", ttl);
        if name == &leaves {
            let left = one.release(&*handle, &now()).expect("an etcd that answers");
            assert!(matches!(left, Left::Released { .. }), "{left:?}");
        }
        assert_eq!(proxy.late(), number - 1, "the stray is still under way");
        until("it arrives", Duration::from_secs(20), || {
            proxy.late() == number
        });
        let found = claims(&two, name);
        if name == &leaves {
            assert_eq!(found, Vec::new(), "the stray made a claim without a caller");
        } else {
            assert_eq!(found.len(), 1, "no other claim was made: {found:?}");
            assert_eq!(found[0].token, Some(token), "and the hold stands");
            let standing = one.verify(&*handle, &now()).expect("an etcd that answers");
            assert!(matches!(standing, Renewal::Renewed { .. }), "{standing:?}");
        }
    }
}

/// From when a hold counts: the last certain sign of life of its holder that etcd has had. The grant
/// reports it.
fn certain_from(claim: &Claim) -> Instant {
    let age_ms = now().boot_ms - claim.lease.renewed.boot_ms;
    let then = instant().checked_sub(Duration::from_millis(age_ms + 1));
    then.expect("a clock that began before this test")
}

/// The lease that proves a holder's life may have been renewed long before the grant. The grant says
/// when, and the holder has the lock for the whole ttl from then on.
#[test]
fn a_grant_says_from_when_it_counts() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, two) = (
        caller(&proxy.address("whole")),
        caller(&server.address("whole")),
    );
    let ttl = Duration::from_secs(3);
    drop(take(&one, &name("first"), "warm", ttl));
    // The lease is renewed every second, and is oldest just before a renewal.
    std::thread::sleep(Duration::from_millis(900));
    let lock = name("second");
    let entered = one.enter(&lock, request("one", ttl), &now());
    let entered = entered.expect("an etcd that answers");
    proxy.weather(Weather::Parted);
    let began = certain_from(&entered.entry.claims[0]);
    assert!(entered.handle.is_some(), "no other claim is there");
    let lapses = one.rules().lapse(ttl).expect("leases run out");
    let (waiter, behind) = line_up(&two, &lock, "two", ttl);
    wait(&two, &waiter, behind, Duration::from_secs(30));
    let after = instant().saturating_duration_since(began);
    assert!(
        after >= lapses,
        "others got in after {after:?} of {lapses:?}"
    );
    assert!(after < lapses * 3, "and not for ever later: {after:?}");
}
