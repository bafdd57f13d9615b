//! Places in line: how long they are kept, for which caller, and how many there are. The clock is an
//! argument, so no test waits.
#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use std::num::NonZeroU32;
use std::sync::Arc;
use tenure_core::{
    Claim, Death, Entering, Entry, Event, Evidence, Force, Holder, Host, Kept, Kind,
    LOOK_AGAIN_SHORT_MS, Liveness, LivenessLock, Mode, Now, PENDING_MAX, Patience, Policy, Process,
    Queueing, Reason, Request, RequestId, Standing, StopRequest, Terms, TryGrant, UNTAKEN_MS,
    WATCH_MS, WaitingFor, Watched,
};

const BOOT: &str = "boot-a";
const GRACE_MS: u64 = 60_000;
const OWNER: Process = Process {
    pid: 7,
    started: Some(70),
};

fn at(ms: u64) -> Now {
    Now {
        wall_us: (1_000_000_000_000 + ms) * 1_000,
        boot_ms: 1_000_000 + ms,
        boot_id: BOOT.into(),
    }
}

fn request(id: &str, terms: Terms) -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new(id).expect("an id"),
            actor: String::new(),
            process: Some(Process {
                pid: 1,
                started: None,
            }),
            command: None,
            host: Arc::new(Host {
                boot_id: Some(BOOT.to_owned()),
                ..Host::default()
            }),
            why: String::new(),
        },
        kind: Kind::Kernel,
        ttl_ms: 30_000,
        force: Force::No,
        patience: Patience::Queue,
        terms,
    }
}

/// What a living caller shows: its liveness lock, or, once it is away, its owner's process.
fn alive(claim: &Claim) -> Evidence {
    Evidence {
        liveness_lock: if claim.reservation.is_some() {
            LivenessLock::Released
        } else {
            LivenessLock::Held
        },
        process: Liveness::Alive,
        command: Liveness::NotRecorded,
    }
}

fn enter(entry: &mut Entry, request: Request, now: &Now) -> Entering {
    entry.enter(&Policy::NATIVE, request, now, alive, &mut Vec::new())
}

fn queued(entry: &mut Entry, id: &str, now: &Now) -> u64 {
    match enter(entry, request(id, Terms::default()), now) {
        Entering::Queued { ticket, .. } => ticket,
        other => panic!("{id} is queued: {other:?}"),
    }
}

/// A list with a holder, and one place that is kept from instant 0 on.
fn kept() -> (Entry, u64) {
    let mut entry = Entry::default();
    let held = enter(&mut entry, request("holder", Terms::default()), &at(0));
    assert!(matches!(held, Entering::Granted { .. }), "{held:?}");
    let ticket = queued(&mut entry, "away", &at(0));
    assert!(entry.reserve(ticket, Some(OWNER), GRACE_MS, &at(0)));
    (entry, ticket)
}

fn back(entry: &mut Entry, kept: Kept, now: &Now) -> Entering {
    let terms = Terms {
        kept: Some(kept),
        ..Terms::default()
    };
    enter(entry, request("back", terms), now)
}

fn is_at(entering: &Entering, place: u64) -> bool {
    matches!(entering, Entering::Queued { ticket, .. } if *ticket == place)
}

#[test]
fn a_place_is_kept_for_its_grace_and_not_a_moment_longer() {
    for kept_by in [Kept::Owner(OWNER), Kept::Ticket(0)] {
        let named = |ticket| match kept_by {
            Kept::Ticket(_) => Kept::Ticket(ticket),
            by @ (Kept::Owner(_) | Kept::Agent) => by,
        };
        for (after_ms, in_time) in [
            (0, true),
            (1, true),
            (GRACE_MS - 1, true),
            (GRACE_MS, true),
            (GRACE_MS + 1, false),
            (GRACE_MS * 100, false),
        ] {
            let (mut entry, ticket) = kept();
            let later = queued(&mut entry, "later", &at(0));
            let entering = back(&mut entry, named(ticket), &at(after_ms));
            if in_time {
                assert!(is_at(&entering, ticket), "{after_ms} ms: {entering:?}");
                assert!(ticket < later, "in front of the claim that came later");
                continue;
            }
            match (kept_by, &entering) {
                // A ticket is a promise that was asked about; without one it just queues.
                (Kept::Ticket(_), Entering::NotKept) => {}
                (Kept::Owner(_), Entering::Queued { ticket, .. }) if *ticket > later => {}
                _ => panic!("{after_ms} ms: {entering:?}"),
            }
        }
    }
}

#[test]
fn a_new_absence_begins_a_new_grace() {
    let (mut entry, ticket) = kept();
    for round in 1..5 {
        let now = at(round * GRACE_MS);
        let entering = back(&mut entry, Kept::Ticket(ticket), &now);
        assert!(is_at(&entering, ticket), "round {round}: {entering:?}");
        assert!(entry.reserve(ticket, Some(OWNER), GRACE_MS, &now));
    }
}

#[test]
fn a_place_that_lapsed_or_whose_owner_died_is_gone_for_everybody() {
    let (entry, ticket) = kept();
    let claim = entry.claim(ticket).expect("its claim");
    let seen = alive(claim);
    assert!(!claim.is_gone(&Policy::NATIVE, seen, &at(GRACE_MS)));
    assert!(claim.is_gone(&Policy::NATIVE, seen, &at(GRACE_MS + 1)));
    let dead = Evidence {
        process: Liveness::Dead(Death::Gone),
        ..seen
    };
    assert!(claim.is_gone(&Policy::NATIVE, dead, &at(0)));
}

#[test]
fn who_is_away_holds_nobody_up_and_has_its_turn_when_it_is_back() {
    let (mut entry, ticket) = kept();
    let later = queued(&mut entry, "later", &at(1));
    let holder = entry.claims.first().expect("the holder").ticket;
    entry.leave(holder, &at(2));
    let grant = entry.try_grant(&Policy::NATIVE, later, &at(3), alive, &mut Vec::new());
    assert!(matches!(grant, TryGrant::Granted { .. }), "{grant:?}");
    let entering = back(&mut entry, Kept::Ticket(ticket), &at(4));
    assert!(
        is_at(&entering, ticket),
        "one holds behind it meanwhile: {entering:?}"
    );
    entry.leave(later, &at(5));
    let grant = entry.try_grant(&Policy::NATIVE, ticket, &at(6), alive, &mut Vec::new());
    assert!(matches!(grant, TryGrant::Granted { .. }), "{grant:?}");
}

/// Two callers with one ticket: the place is one caller's.
#[test]
fn a_place_that_is_in_use_is_not_given_twice() {
    let (mut entry, ticket) = kept();
    let entering = back(&mut entry, Kept::Ticket(ticket), &at(1));
    assert!(is_at(&entering, ticket), "{entering:?}");
    let entering = back(&mut entry, Kept::Ticket(ticket), &at(2));
    assert_eq!(entering, Entering::NotKept);
    let entering = back(&mut entry, Kept::Owner(OWNER), &at(2));
    let Entering::Queued { ticket: other, .. } = entering else {
        panic!("an owner queues anew: {entering:?}");
    };
    assert_ne!(other, ticket);
}

/// A place in a queue of one goes to a newer arrival, whether its caller is there or away.
#[test]
fn a_kept_place_in_a_queue_of_one_is_lost_to_a_newer_arrival() {
    let single = Terms {
        queueing: Queueing::Single,
        ..Terms::default()
    };
    let mut entry = Entry::default();
    let _ = enter(&mut entry, request("holder", single), &at(0));
    let Entering::Queued { ticket, .. } = enter(&mut entry, request("away", single), &at(0)) else {
        panic!("it waits");
    };
    assert!(entry.reserve(ticket, Some(OWNER), GRACE_MS, &at(0)));
    let mut events = Vec::new();
    let newer = request("newer", single);
    let _ = entry.enter(&Policy::NATIVE, newer, &at(1), alive, &mut events);
    assert!(
        matches!(&events[..], [Event::Displaced { claim }] if claim.ticket == ticket),
        "{events:?}"
    );
    let entering = back(&mut entry, Kept::Ticket(ticket), &at(2));
    assert_eq!(entering, Entering::NotKept);
}

/// "Up to 100 pending in arrival order, the rest refused at once": the dead and the absent are not counted,
/// and a caller that has a place keeps it.
#[test]
fn a_queue_of_max_counts_the_living_who_are_there() {
    let max = Terms {
        queueing: Queueing::Max,
        ..Terms::default()
    };
    let mut entry = Entry::default();
    let _ = enter(&mut entry, request("holder", max), &at(0));
    let mut tickets = Vec::new();
    for number in 0..PENDING_MAX {
        let entering = enter(&mut entry, request(&format!("r{number}"), max), &at(0));
        let Entering::Queued { ticket, .. } = entering else {
            panic!("{number} of {PENDING_MAX}: {entering:?}");
        };
        tickets.push(ticket);
    }
    let refused = enter(&mut entry, request("more", max), &at(0));
    assert!(
        matches!(&refused, Entering::Refused(refusal) if refusal.reason == Reason::QueueFull),
        "{refused:?}"
    );
    assert_eq!(entry.claims.len(), 1 + PENDING_MAX, "and left no trace");
    assert!(tickets.is_sorted(), "in order of arrival");
    // A waiter is away for a while: there is room, and none when it is back.
    assert!(entry.reserve(tickets[3], Some(OWNER), GRACE_MS, &at(0)));
    let entering = enter(&mut entry, request("instead", max), &at(1));
    assert!(matches!(entering, Entering::Queued { .. }), "{entering:?}");
    let terms = Terms {
        kept: Some(Kept::Ticket(tickets[3])),
        ..max
    };
    let entering = enter(&mut entry, request("back", terms), &at(2));
    assert!(is_at(&entering, tickets[3]), "its own place: {entering:?}");
    // A waiter is dead.
    let dead = tickets[5];
    let seen = |claim: &Claim| {
        let mut seen = alive(claim);
        if claim.ticket == dead || claim.ticket == tickets[6] {
            seen.liveness_lock = LivenessLock::Released;
        }
        seen
    };
    let last = request("last", max);
    let entering = entry.enter(&Policy::NATIVE, last, &at(3), seen, &mut Vec::new());
    assert!(matches!(entering, Entering::Queued { .. }), "{entering:?}");
}

/// A process is known by its number and start on its own machine, and by nothing less.
#[test]
fn a_place_is_kept_for_one_process_on_one_host() {
    let (entry, place) = kept();
    let comes = |owner: Process, host: Option<Host>| {
        let terms = Terms {
            kept: Some(Kept::Owner(owner)),
            ..Terms::default()
        };
        let mut request = request("back", terms);
        if let Some(host) = host {
            request.holder.host = host.into();
        }
        enter(&mut entry.clone(), request, &at(1))
    };
    assert!(is_at(&comes(OWNER, None), place));
    let other = Process { pid: 8, ..OWNER };
    let elsewhere = Host {
        machine_id: Some("another".to_owned()),
        boot_id: Some(BOOT.to_owned()),
        ..Host::default()
    };
    for entering in [comes(other, None), comes(OWNER, Some(elsewhere))] {
        assert!(
            matches!(entering, Entering::Queued { ticket, .. } if ticket > place),
            "it enters anew: {entering:?}"
        );
    }
}

/// The place of an agent: whichever process of whichever sandbox asks for it, and no sibling, not even by its number.
#[test]
fn a_place_is_kept_for_one_agent_and_for_none_of_its_siblings() {
    let of = |agent: Option<&str>, kept: Option<Kept>, boot: &str| {
        let terms = Terms {
            kept,
            ..Terms::default()
        };
        let mut request = request("call", terms);
        request.holder.host = Arc::new(Host {
            boot_id: Some(boot.to_owned()),
            pid_namespace: Some(4),
            ..Host::default()
        });
        if let Some(agent) = agent {
            request.holder.set_agent(&agent.parse().expect("a key"));
        }
        request
    };
    let (mut entry, other) = kept();
    let agent = Some("claude/s/a");
    let Entering::Queued { ticket: place, .. } = enter(&mut entry, of(agent, None, BOOT), &at(0))
    else {
        panic!("it waits");
    };
    assert!(entry.reserve(place, None, GRACE_MS, &at(0)));
    let comes = |request: Request, ms: u64| enter(&mut entry.clone(), request, &at(ms));
    let auto = Some(Kept::Agent);
    assert!(is_at(&comes(of(agent, auto, BOOT), GRACE_MS), place));
    assert!(
        is_at(&comes(of(agent, auto, "boot-b"), 1), place),
        "the key decides, and no machine"
    );
    for (who, ms) in [
        (Some("claude/s/b"), 1),
        (Some("claude/s"), 1),
        (Some("codex/s/a"), 1),
        (None, 1),
        // The agent was silent for too long.
        (agent, GRACE_MS + 1),
    ] {
        let entering = comes(of(who, auto, BOOT), ms);
        assert!(
            matches!(entering, Entering::Queued { ticket, .. } if ticket > place),
            "{who:?} enters anew: {entering:?}"
        );
    }
    let numbered = Some(Kept::Ticket(place));
    for (who, may) in [
        (agent, true),
        (Some("claude/s"), true),
        (None, true),
        (Some("claude/s/b"), false),
    ] {
        let entering = comes(of(who, numbered, BOOT), 1);
        let is_there = is_at(&entering, place);
        assert!(
            is_there == may && (may || entering == Entering::NotKept),
            "{who:?}: {entering:?}"
        );
    }
    // The end of an agent, or of its session, gives it up; that of a sibling does not.
    for (ended, count) in [
        ("claude/s/a", 1),
        ("claude/s", 1),
        ("claude/s/b", 0),
        ("claude/t", 0),
    ] {
        let mut entry = entry.clone();
        let ended = ended.parse().expect("a key");
        assert_eq!(entry.forget_places(&ended), count, "{ended}");
        assert!(entry.claim(other).is_some(), "another caller's place stays");
        assert_eq!(entry.claim(place).is_none(), count == 1, "{ended}");
    }
    // What a script keeps that only inherited the key is the script's.
    assert!(!is_at(&comes(of(agent, auto, BOOT), 1), other));
    assert!(entry.reserve(place, Some(OWNER), GRACE_MS, &at(0)));
    let entering = enter(&mut entry, of(agent, auto, BOOT), &at(1));
    assert!(matches!(entering, Entering::Queued { ticket, .. } if ticket > place));
}

#[test]
fn who_comes_back_first_waits_for_nobody_that_only_waits_behind_it() {
    let (mut entry, place) = kept();
    queued(&mut entry, "later", &at(1));
    let holder = entry.claims.first().expect("the holder").ticket;
    entry.leave(holder, &at(2));
    let entering = back(&mut entry, Kept::Ticket(place), &at(3));
    assert!(
        matches!(entering, Entering::Granted { ticket, .. } if ticket == place),
        "{entering:?}"
    );
}

/// A caller that overrides a hold gets it, wherever others wait.
#[test]
fn force_from_a_kept_place_gets_what_it_overrides() {
    let forced = |waits_before: bool, waits_behind: bool| {
        let mut entry = Entry::default();
        let mut owner = request("holder", Terms::default());
        owner.kind = Kind::Detached;
        let Entering::Granted { ticket: holder, .. } = enter(&mut entry, owner, &at(0)) else {
            panic!("it is free");
        };
        if waits_before {
            queued(&mut entry, "before", &at(0));
        }
        let place = queued(&mut entry, "away", &at(0));
        if waits_behind {
            queued(&mut entry, "behind", &at(0));
        }
        assert!(entry.reserve(place, Some(OWNER), GRACE_MS, &at(0)));
        let terms = Terms {
            kept: Some(Kept::Ticket(place)),
            ..Terms::default()
        };
        let comes = Request {
            force: Force::Confirmed,
            patience: Patience::AtOnce,
            ..request("back", terms)
        };
        let entering = enter(&mut entry, comes, &at(1));
        let granted = matches!(entering, Entering::Granted { .. });
        (granted, entry.claim(holder).is_some())
    };
    assert_eq!(forced(false, false), (true, false), "no other claim waits");
    assert_eq!(forced(false, true), (true, false), "one waits behind it");
    assert_eq!(forced(true, false), (true, false), "one waits before it");
}

/// The displaced waiter learns of it when it wakes, and leaves by itself.
#[test]
fn who_was_displaced_keeps_its_claim_until_it_has_read_so_and_is_told_once() {
    let single = Terms {
        queueing: Queueing::Single,
        ..Terms::default()
    };
    let mut entry = Entry::default();
    let _ = enter(&mut entry, request("holder", single), &at(0));
    let mut displaced = Vec::new();
    for id in ["first", "second", "third"] {
        let mut events = Vec::new();
        let comes = request(id, single);
        let _ = entry.enter(&Policy::NATIVE, comes, &at(0), alive, &mut events);
        let told = events.into_iter().filter_map(|event| match event {
            Event::Displaced { claim } => Some(claim.holder.request_id.to_string()),
            _ => None,
        });
        displaced.extend(told);
    }
    assert_eq!(displaced, ["first", "second"], "each of them once");
    let asked: Vec<bool> = (entry.claims.iter())
        .map(|claim| claim.cancel.is_some())
        .collect();
    assert_eq!(asked, [false, true, true, false], "all of them are there");
}

#[test]
fn a_hold_is_no_place_and_neither_is_a_claim_that_was_asked_to_stop() {
    let (mut entry, place) = kept();
    let holder = entry.claims.first().expect("the holder").ticket;
    let waits = queued(&mut entry, "waits", &at(0));
    assert!(!entry.reserve(holder, Some(OWNER), GRACE_MS, &at(0)));
    assert!(entry.ask_to_stop(waits, "x", &at(0)));
    assert!(!entry.reserve(waits, Some(OWNER), GRACE_MS, &at(0)));
    assert!(
        !entry.reserve(waits + 1, Some(OWNER), GRACE_MS, &at(0)),
        "no such claim"
    );
    let away: Vec<u64> = (entry.claims.iter())
        .filter(|claim| claim.reservation.is_some())
        .map(|claim| claim.ticket)
        .collect();
    assert_eq!(away, [place]);
}

#[test]
fn what_a_hold_waits_for_is_written_into_that_hold_alone() {
    let (mut entry, _) = kept();
    let token = entry.claims.first().and_then(|claim| claim.token);
    let token = token.expect("it holds");
    let waits = WaitingFor {
        place: "a place".to_owned(),
        name: "other".to_owned(),
        ticket: 3,
    };
    assert!(!entry.note_waiting(token + 1, Some(&waits)), "no such hold");
    assert!(entry.note_waiting(token, Some(&waits)));
    let noted: Vec<bool> = (entry.claims.iter())
        .map(|claim| claim.waiting_for.is_some())
        .collect();
    assert_eq!(noted, [true, false]);
    assert!(entry.note_waiting(token, None));
    assert!(entry.claims.iter().all(|claim| claim.waiting_for.is_none()));
}

#[test]
fn who_is_away_or_was_asked_to_leave_keeps_no_reader_from_holding() {
    let reads = Terms {
        mode: Mode::Shared,
        ..Terms::default()
    };
    let mut entry = Entry::default();
    let _ = enter(&mut entry, request("first", reads), &at(0));
    let away = queued(&mut entry, "away", &at(0));
    let asked = queued(&mut entry, "asked", &at(0));
    assert!(entry.reserve(away, Some(OWNER), GRACE_MS, &at(0)));
    assert!(entry.ask_to_stop(asked, "x", &at(0)));
    let second = enter(&mut entry, request("second", reads), &at(1));
    assert!(matches!(second, Entering::Granted { .. }), "{second:?}");
    assert_eq!(entry.claims.len(), 4, "and neither is removed for it");
}

/// The place of the caller itself is not among those that it takes.
#[test]
fn who_comes_back_to_a_queue_of_one_has_its_own_place_and_takes_those_before_it() {
    let single = Terms {
        queueing: Queueing::Single,
        ..Terms::default()
    };
    let mut entry = Entry::default();
    let _ = enter(&mut entry, request("holder", single), &at(0));
    let max = Terms {
        queueing: Queueing::Max,
        ..single
    };
    let places = ["before", "own", "behind"].map(|id| {
        let terms = if id == "own" { single } else { max };
        match enter(&mut entry, request(id, terms), &at(0)) {
            Entering::Queued { ticket, .. } => ticket,
            other => panic!("{id} is queued: {other:?}"),
        }
    });
    let [before, own, behind] = places;
    assert!(entry.is_cancelled(before), "a newer one came");
    assert!(entry.reserve(own, Some(OWNER), GRACE_MS, &at(0)));
    let comes = Terms {
        kept: Some(Kept::Ticket(own)),
        ..single
    };
    let entering = enter(&mut entry, request("back", comes), &at(1));
    assert!(is_at(&entering, own), "{entering:?}");
    assert!(!entry.is_cancelled(behind), "it came later");
}

#[test]
fn the_newest_of_a_queue_of_one_takes_a_kept_place_though_it_need_not_wait_itself() {
    let lost_to = |queueing| {
        let (mut entry, _) = kept();
        let holder = entry.claims.first().expect("the holder").ticket;
        for claim in &mut entry.claims {
            claim.queueing = Queueing::Single;
        }
        entry.leave(holder, &at(1));
        let terms = Terms {
            queueing,
            ..Terms::default()
        };
        let entering = enter(&mut entry, request("newest", terms), &at(1));
        assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
        entry.claims.iter().all(|claim| claim.reservation.is_none())
    };
    assert!(lost_to(Queueing::Single));
    assert!(!lost_to(Queueing::Fifo), "it takes no place");
}

/// A holder, and behind it so many waiters.
fn line_of(waiters: usize) -> (Entry, u64, Vec<u64>) {
    let mut entry = Entry::default();
    let held = enter(&mut entry, request("holder", Terms::default()), &at(0));
    let Entering::Granted { ticket, .. } = held else {
        panic!("it is free: {held:?}");
    };
    let ids = (0..waiters).map(|number| format!("w{number}"));
    let waiting = ids.map(|id| queued(&mut entry, &id, &at(0))).collect();
    (entry, ticket, waiting)
}

fn look(entry: &mut Entry, own: u64, now: &Now, stopped: &[u64]) -> TryGrant {
    let is_stopped = |claim: &Claim| stopped.contains(&claim.ticket);
    let (policy, events) = (&Policy::NATIVE, &mut Vec::new());
    entry.try_grant_seeing(policy, own, now, alive, is_stopped, None, events)
}

/// How long a waiter is told to leave the turn to stopped waiters.
fn rest_of(grant: &TryGrant) -> Option<u64> {
    match grant {
        TryGrant::Behind(tenure_core::Predecessor::Still { still, .. }) => Some(still.rest_ms),
        _ => None,
    }
}

#[test]
fn a_stopped_waiter_keeps_its_turn_for_a_grace_that_begins_with_the_end_of_the_hold() {
    let (mut entry, holder, waiting) = line_of(2);
    let stopped = [waiting[0]];
    let while_held = look(&mut entry, waiting[1], &at(50_000), &stopped);
    assert!(matches!(while_held, TryGrant::Behind(_)), "{while_held:?}");
    assert_eq!(rest_of(&while_held), None, "a claim holds");
    entry.leave(holder, &at(60_000));
    for (now_ms, rest_ms) in [(60_000, 10_000), (61_000, 9_000), (69_999, 1)] {
        let early = look(&mut entry, waiting[1], &at(now_ms), &stopped);
        assert_eq!(rest_of(&early), Some(rest_ms), "{early:?}");
    }
    let mut well = entry.clone();
    let not_stopped = look(&mut well, waiting[1], &at(70_000), &[]);
    assert!(
        matches!(not_stopped, TryGrant::Behind(_)),
        "{not_stopped:?}"
    );
    let passes = look(&mut entry, waiting[1], &at(70_000), &stopped);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    assert!(entry.claim(waiting[0]).expect("its place").was_passed());

    let goes_on = look(&mut entry, waiting[0], &at(70_001), &[]);
    assert!(matches!(goes_on, TryGrant::Behind(_)), "held: {goes_on:?}");
    let own = entry.claim(waiting[0]).expect("its place");
    assert!(!own.was_passed(), "it counts again");
    entry.leave(waiting[1], &at(71_000));
    let newer = queued(&mut entry, "newer", &at(71_000));
    let behind = look(&mut entry, newer, &at(71_000), &[]);
    assert!(
        matches!(behind, TryGrant::Behind(_)),
        "its place: {behind:?}"
    );
    let holds = look(&mut entry, waiting[0], &at(71_000), &[]);
    assert!(matches!(holds, TryGrant::Granted { .. }), "{holds:?}");
}

#[test]
fn who_was_passed_once_is_passed_without_a_grace_until_it_looks() {
    let (mut entry, holder, waiting) = line_of(3);
    let stopped = [waiting[0]];
    entry.leave(holder, &at(0));
    let passes = look(&mut entry, waiting[1], &at(10_000), &stopped);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    entry.leave(waiting[1], &at(20_000));
    let mut on = entry.clone();
    let passes = look(&mut entry, waiting[2], &at(20_000), &stopped);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    let looks = look(&mut on, waiting[0], &at(20_000), &[]);
    assert!(matches!(looks, TryGrant::Granted { .. }), "{looks:?}");
    let waits = look(&mut on, waiting[2], &at(20_000), &[]);
    assert!(
        matches!(waits, TryGrant::Behind(_)),
        "it goes on: {waits:?}"
    );
}

/// A look of a waiter that sees no process stopped, and has watched so long that the claim `front` does nothing.
fn watch(entry: &mut Entry, own: u64, now: &Now, front: u64, ms: u64) -> TryGrant {
    let watched = Some(Watched { front, ms });
    let (policy, events) = (&Policy::NATIVE, &mut Vec::new());
    entry.try_grant_seeing(policy, own, now, alive, |_| false, watched, events)
}

/// The time that counts is the caller's own, and not that of the list: the machine may have slept.
#[test]
fn a_waiter_that_does_not_act_is_passed_by_one_that_has_watched_it_for_the_grace() {
    let (mut entry, holder, waiting) = line_of(2);
    entry.leave(holder, &at(0));
    let (front, own) = (waiting[0], waiting[1]);
    let early = watch(&mut entry, own, &at(UNTAKEN_MS - 1), front, u64::MAX);
    assert_eq!(rest_of(&early), None, "it may be about to act: {early:?}");
    for (seen, ms, rest_ms) in [
        (front, 0, WATCH_MS),
        (front, WATCH_MS - 1, 1),
        (holder, u64::MAX, WATCH_MS),
    ] {
        let waits = watch(&mut entry, own, &at(3_600_000), seen, ms);
        assert_eq!(rest_of(&waits), Some(rest_ms), "{seen} {ms}: {waits:?}");
    }
    let passes = watch(&mut entry, own, &at(3_600_000), front, WATCH_MS);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    assert!(entry.claim(front).expect("its place").was_passed());
    let goes_on = watch(&mut entry, front, &at(3_600_001), 0, 0);
    assert!(matches!(goes_on, TryGrant::Behind(_)), "held: {goes_on:?}");
    assert!(!entry.claim(front).expect("its place").was_passed());
}

/// Who stands between has not had its turn yet: the mark asks whether it acts.
#[test]
fn all_that_do_not_act_cost_one_grace_and_one_that_acts_keeps_its_turn() {
    let (mut entry, holder, waiting) = line_of(4);
    entry.leave(holder, &at(0));
    let (front, last) = (waiting[0], waiting[3]);
    let marks = watch(&mut entry, last, &at(10_000), front, WATCH_MS);
    let notice_ms = rest_of(&marks).expect("a time to look");
    assert!(notice_ms > LOOK_AGAIN_SHORT_MS, "{notice_ms}");
    for ticket in &waiting[..3] {
        assert!(entry.claim(*ticket).expect("its place").was_passed());
    }
    let over = at(10_000 + notice_ms);
    let mut nobody = entry.clone();
    let passes = watch(&mut nobody, last, &over, 0, 0);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    // The third one looks, and so the last one waits for it.
    let mut early = entry.clone();
    let waits = watch(&mut early, last, &at(11_000), 0, 0);
    assert!(matches!(waits, TryGrant::Behind(_)), "{waits:?}");
    let looks = watch(&mut entry, waiting[2], &at(11_000), 0, 0);
    assert!(matches!(looks, TryGrant::Behind(_)), "{looks:?}");
    let waits = watch(&mut entry, last, &over, 0, 0);
    assert!(matches!(waits, TryGrant::Behind(_)), "{waits:?}");
    let takes = watch(&mut entry, waiting[2], &over, 0, 0);
    assert!(matches!(takes, TryGrant::Granted { .. }), "{takes:?}");
    // From now on nobody grants another grace.
    entry.leave(waiting[2], &at(20_000));
    let next = watch(&mut entry, last, &at(20_000), 0, 0);
    assert!(matches!(next, TryGrant::Granted { .. }), "{next:?}");
}

/// As for one that is stopped: the next caller passes it.
#[test]
fn a_line_in_which_nobody_takes_the_turn_is_free_after_the_grace() {
    let (mut entry, holder, _) = line_of(2);
    let standing = |entry: &Entry, ms| {
        let (standing, _) = entry.standing(&Policy::NATIVE, &at(ms), alive);
        standing
    };
    assert_ne!(standing(&entry, 60_000), Standing::Free, "it is held");
    entry.leave(holder, &at(0));
    // The second one would have passed the first one by now, if it acted.
    let acts_ms = 10_000 + LOOK_AGAIN_SHORT_MS + 1_000;
    assert_ne!(standing(&entry, acts_ms - 1), Standing::Free);
    assert_eq!(standing(&entry, acts_ms), Standing::Free);
}

/// A store on servers ends such a claim by its lease.
#[test]
fn where_nobody_watches_a_waiter_that_does_not_act_keeps_its_turn() {
    let (mut entry, holder, waiting) = line_of(2);
    entry.leave(holder, &at(0));
    let waits = look(&mut entry, waiting[1], &at(3_600_000), &[]);
    assert!(matches!(waits, TryGrant::Behind(_)), "{waits:?}");
    assert_eq!(rest_of(&waits), None, "{waits:?}");
}

/// Of two slots one is taken. The next one in line could have the other, or could not.
#[test]
fn a_waiter_that_cannot_hold_yet_has_not_had_its_turn() {
    for (mode, is_passed) in [(in_slots(2).mode, true), (Mode::Exclusive, false)] {
        let mut entry = Entry::default();
        let slots = in_slots(2);
        let mut holders = Vec::new();
        for id in ["one", "two"] {
            match enter(&mut entry, request(id, slots), &at(0)) {
                Entering::Granted { ticket, .. } => holders.push(ticket),
                other => panic!("there is room: {other:?}"),
            }
        }
        let mut waits = |id: &str, mode| {
            let terms = Terms { mode, ..slots };
            match enter(&mut entry, request(id, terms), &at(0)) {
                Entering::Queued { ticket, .. } => ticket,
                other => panic!("it is full: {other:?}"),
            }
        };
        let (front, own) = (waits("front", mode), waits("own", slots.mode));
        entry.leave(holders[0], &at(0));
        let looks = watch(&mut entry, own, &at(60_000), front, WATCH_MS);
        let is_granted = matches!(looks, TryGrant::Granted { .. });
        assert_eq!(is_granted, is_passed, "{mode:?}: {looks:?}");
    }
}

/// The process that would have taken it over does not act.
#[test]
fn behind_a_holder_that_died_a_watcher_begins_the_turn_of_the_next_one() {
    let (mut entry, holder, waiting) = line_of(2);
    let (front, own) = (waiting[0], waiting[1]);
    let looks = |entry: &mut Entry, now: &Now, ms| {
        let evidence = |claim: &Claim| Evidence {
            liveness_lock: if claim.ticket == holder {
                LivenessLock::Released
            } else {
                LivenessLock::Held
            },
            ..alive(claim)
        };
        let watched = Some(Watched { front, ms });
        let (policy, events) = (&Policy::NATIVE, &mut Vec::new());
        entry.try_grant_seeing(policy, own, now, evidence, |_| false, watched, events)
    };
    let found = looks(&mut entry, &at(500_000), 0);
    assert_eq!(rest_of(&found), Some(UNTAKEN_MS), "{found:?}");
    assert!(entry.claim(holder).is_some(), "the next one may do that");
    let begins = looks(&mut entry, &at(502_000), UNTAKEN_MS);
    assert!(entry.claim(holder).is_none(), "{begins:?}");
    let early = looks(&mut entry, &at(503_000), WATCH_MS);
    assert!(matches!(early, TryGrant::Behind(_)), "{early:?}");
    let passes = looks(&mut entry, &at(512_000), WATCH_MS);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
}

#[test]
fn a_newcomer_that_never_waits_gets_the_lock_once_the_stopped_stand_aside() {
    let (mut entry, holder, waiting) = line_of(2);
    entry.leave(holder, &at(0));
    let comes = |entry: &mut Entry, force, now: &Now| {
        let request = Request {
            patience: Patience::AtOnce,
            force,
            ..request("newcomer", Terms::default())
        };
        let is_stopped = |claim: &Claim| waiting.contains(&claim.ticket);
        let (policy, events) = (&Policy::NATIVE, &mut Vec::new());
        entry.enter_seeing(policy, request, now, alive, is_stopped, events)
    };
    let early = comes(&mut entry, Force::No, &at(4_000));
    let Entering::Refused(refusal) = early else {
        panic!("they keep their turn: {early:?}");
    };
    let still = refusal.standstill.expect("the reason");
    assert_eq!((still.since_ms, still.rest_ms), (4_000, 6_000));
    assert_eq!(refusal.blocker.map(|claim| claim.ticket), Some(waiting[0]));
    for (force, ms) in [(Force::Asked, 4_000), (Force::No, 10_000)] {
        let mut entry = entry.clone();
        let late = comes(&mut entry, force, &at(ms));
        assert!(
            matches!(late, Entering::Granted { .. }),
            "{force:?}: {late:?}"
        );
        assert_eq!(entry.claims.len(), 3, "they keep their places");
    }
}

/// No holder released: the caller that finds the holder dead begins the grace of the next claims.
#[test]
fn the_grace_behind_a_holder_that_died_begins_when_that_is_found() {
    let (mut entry, holder, waiting) = line_of(2);
    let looks = |entry: &mut Entry, now: &Now| {
        let evidence = |claim: &Claim| Evidence {
            liveness_lock: if claim.ticket == holder {
                LivenessLock::Released
            } else {
                LivenessLock::Held
            },
            ..alive(claim)
        };
        let is_stopped = |claim: &Claim| claim.ticket == waiting[0];
        let mut events = Vec::new();
        let (policy, own) = (&Policy::NATIVE, waiting[1]);
        let seen = &mut events;
        let grant = entry.try_grant_seeing(policy, own, now, evidence, is_stopped, None, seen);
        (grant, events.len())
    };
    let (found, events) = looks(&mut entry, &at(500_000));
    assert_eq!((rest_of(&found), events), (Some(10_000), 1), "{found:?}");
    let (passes, _) = looks(&mut entry, &at(510_000));
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
}

#[test]
fn the_end_of_a_hold_on_another_boot_puts_no_turn_off() {
    let (mut entry, holder, waiting) = line_of(2);
    let days = Now {
        boot_ms: 900_000_000_000,
        boot_id: "another boot".into(),
        ..at(0)
    };
    entry.leave(holder, &days);
    let passes = look(&mut entry, waiting[1], &at(10_000), &[waiting[0]]);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
}

#[test]
fn cancel_and_a_forced_release_reach_who_is_next_and_stopped() {
    let (mut entry, holder, waiting) = line_of(1);
    let now = at(1_000);
    let is_stopped = |claim: &Claim| waiting.contains(&claim.ticket);
    let held = entry.cancel_seeing(&Policy::NATIVE, "me", None, &at(0), alive, is_stopped);
    assert_eq!(held[0].ticket, holder, "the holder comes first");
    entry.leave(holder, &at(0));
    let mut forced = entry.clone();
    let (policy, force) = (&Policy::NATIVE, Force::Confirmed);
    let released = forced.force_release_seeing(policy, None, force, &now, alive, is_stopped);
    assert!(
        matches!(&released, tenure_core::Forced::SetAside { claim } if claim.ticket == waiting[0]),
        "{released:?}"
    );
    let (standing, _) = forced.standing_seeing(policy, &now, alive, is_stopped);
    assert_eq!(standing, Standing::Free);
    let (standing, _) = forced.standing_seeing(policy, &now, alive, |_| false);
    assert_eq!(standing, Standing::Free, "until it looks");
    let goes_on = look(&mut forced, waiting[0], &now, &[]);
    assert!(matches!(goes_on, TryGrant::Granted { .. }), "{goes_on:?}");

    let asked = entry.cancel_seeing(policy, "me", None, &now, alive, is_stopped);
    assert_eq!(asked.len(), 1);
    assert!(entry.is_cancelled(waiting[0]));
    let (standing, _) = entry.standing_seeing(policy, &now, alive, is_stopped);
    assert_eq!(standing, Standing::Free, "it stands aside at once");
    let goes_on = look(&mut entry, waiting[0], &now, &[]);
    assert!(matches!(goes_on, TryGrant::Cancelled { .. }), "{goes_on:?}");
}

#[test]
fn cancel_reaches_the_claims_that_are_meant_and_no_others() {
    let (mut entry, holder, waiting) = line_of(3);
    let owner = None;
    assert!(entry.reserve(waiting[2], owner, 60_000, &at(0)));
    let mut ask = |ids: &[&str]| {
        let is_meant = |claim: &Claim| ids.contains(&claim.holder.request_id.as_str());
        let whom: &dyn Fn(&Claim) -> bool = &is_meant;
        let asked =
            entry.cancel_seeing(&Policy::NATIVE, "me", Some(whom), &at(1), alive, |_| false);
        let asked: Vec<u64> = asked.iter().map(|claim| claim.ticket).collect();
        let marked = |ticket: &u64| entry.is_cancelled(*ticket);
        let all: Vec<u64> = entry.claims.iter().map(|claim| claim.ticket).collect();
        (
            asked,
            all.iter().copied().filter(marked).collect::<Vec<_>>(),
            all.len(),
        )
    };
    assert_eq!(ask(&["nobody"]), (vec![], vec![], 4));
    assert_eq!(ask(&["w1"]), (vec![waiting[1]], vec![waiting[1]], 4));
    assert_eq!(
        ask(&["w2"]),
        (vec![waiting[2]], vec![waiting[1]], 3),
        "it is away"
    );
    let both = vec![holder, waiting[1]];
    assert_eq!(ask(&["holder"]), (vec![holder], both, 3));
}

#[test]
fn a_later_request_to_stop_can_only_shorten_the_grace() {
    let (mut entry, holder, _) = line_of(0);
    let mut ask = |millis, grace_ms| {
        let by = StopRequest {
            grace_ms,
            ..StopRequest::from("me")
        };
        entry.ask_to_stop(holder, by, &at(millis));
        let cancel = entry.claim(holder).and_then(|claim| claim.cancel.as_ref());
        cancel.map(|cancel| (cancel.at.wall_ms - at(0).wall_us / 1_000, cancel.grace_ms))
    };
    assert_eq!(ask(0, None), Some((0, None)));
    assert_eq!(ask(10, Some(5_000)), Some((0, Some(5_010))), "from then on");
    assert_eq!(ask(20, Some(9_000)), Some((0, Some(5_010))), "never longer");
    assert_eq!(ask(30, Some(0)), Some((0, Some(30))));
    assert_eq!(ask(40, None), Some((0, Some(30))));
}

/// A list with a holder of each of these kinds, all in this mode, and so many waiters in the same mode.
fn slots_of(kinds: &[Kind], slots: u32, waiters: usize) -> (Entry, Vec<u64>, Vec<u64>) {
    let mut entry = Entry::default();
    let terms = in_slots(slots);
    let mut holders = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        let holder = Request {
            kind: *kind,
            ..request(&format!("h{number}"), terms)
        };
        match enter(&mut entry, holder, &at(0)) {
            Entering::Granted { ticket, .. } => holders.push(ticket),
            other => panic!("a slot is free: {other:?}"),
        }
    }
    let waits = |number| match enter(&mut entry, request(&format!("w{number}"), terms), &at(0)) {
        Entering::Queued { ticket, .. } => ticket,
        other => panic!("no slot is free: {other:?}"),
    };
    let waiting = (0..waiters).map(waits).collect();
    (entry, holders, waiting)
}

fn in_slots(slots: u32) -> Terms {
    Terms {
        mode: Mode::Slots(NonZeroU32::new(slots).expect("a number of slots")),
        ..Terms::default()
    }
}

#[test]
fn a_stopped_waiter_is_not_passed_while_all_slots_are_held() {
    let (mut entry, holders, waiting) = slots_of(&[Kind::Kernel; 2], 2, 2);
    let full = look(&mut entry, waiting[1], &at(50_000), &waiting[..1]);
    assert!(matches!(full, TryGrant::Behind(_)), "{full:?}");
    entry.leave(holders[0], &at(50_000));
    let passes = look(&mut entry, waiting[1], &at(60_000), &waiting[..1]);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
}

/// The first waiter was away while the second one was granted. It came back, and is stopped before it looks.
#[test]
fn a_free_slot_is_not_kept_for_a_stopped_waiter_by_a_hold_behind_it() {
    let (mut entry, holders, waiting) = slots_of(&[Kind::Kernel; 2], 2, 3);
    assert!(entry.reserve(waiting[0], Some(OWNER), GRACE_MS, &at(0)));
    entry.leave(holders[0], &at(0));
    let second = look(&mut entry, waiting[1], &at(0), &[]);
    assert!(matches!(second, TryGrant::Granted { .. }), "{second:?}");
    let comes = Terms {
        kept: Some(Kept::Ticket(waiting[0])),
        ..in_slots(2)
    };
    let entering = enter(&mut entry, request("back", comes), &at(1));
    assert!(is_at(&entering, waiting[0]), "{entering:?}");
    entry.leave(holders[1], &at(10));
    let runs = look(&mut entry.clone(), waiting[2], &at(60_000), &[]);
    assert!(matches!(runs, TryGrant::Behind(_)), "its turn: {runs:?}");
    let passes = look(&mut entry, waiting[2], &at(60_000), &waiting[..1]);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
}

#[test]
fn a_line_in_which_all_are_stopped_is_free_after_the_grace_and_a_stopped_holder_holds() {
    let (mut entry, holder, waiting) = line_of(2);
    let policy = &Policy::NATIVE;
    let late = at(50_000);
    let (standing, by) = entry.standing_seeing(policy, &late, alive, |_| true);
    assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
    assert_eq!(by.map(|claim| claim.ticket), Some(holder));
    entry.leave(holder, &at(60_000));
    for (ms, is_free) in [(69_999, false), (70_000, true)] {
        let all = |claim: &Claim| waiting.contains(&claim.ticket);
        let (standing, by) = entry.standing_seeing(policy, &at(ms), alive, all);
        assert_eq!(standing == Standing::Free, is_free, "{ms} ms: {standing:?}");
        assert_eq!(by.is_none(), is_free);
        let (one_runs, by) =
            entry.standing_seeing(policy, &at(ms), alive, |claim| claim.ticket == waiting[0]);
        assert!(
            matches!(one_runs, Standing::Held(_)),
            "{ms} ms: {one_runs:?}"
        );
        assert_eq!(by.map(|claim| claim.ticket), Some(waiting[0]));
    }
}

/// Of the places that yield to newer claims, one that was passed is idle while its process is stopped, and only then.
#[test]
fn a_newer_claim_takes_the_place_of_a_passed_one_that_is_still_stopped() {
    let (mut entry, holders, waiting) = slots_of(&[Kind::Kernel; 2], 2, 2);
    let first = entry
        .claims
        .iter_mut()
        .find(|claim| claim.ticket == waiting[0]);
    first.expect("it waits").queueing = Queueing::Single;
    entry.leave(holders[0], &at(0));
    let passes = look(&mut entry, waiting[1], &at(10_000), &waiting[..1]);
    assert!(matches!(passes, TryGrant::Granted { .. }), "{passes:?}");
    for ticket in [holders[1], waiting[1]] {
        entry.leave(ticket, &at(10_000));
    }
    for (is_stopped, is_taken) in [(true, true), (false, false)] {
        let mut entry = entry.clone();
        let newer = request(
            "newer",
            Terms {
                queueing: Queueing::Single,
                ..in_slots(2)
            },
        );
        let mut events = Vec::new();
        let seen = |claim: &Claim| is_stopped && claim.ticket == waiting[0];
        let entering = entry.enter_seeing(
            &Policy::NATIVE,
            newer,
            &at(10_000),
            alive,
            seen,
            &mut events,
        );
        assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
        assert_eq!(
            entry.is_cancelled(waiting[0]),
            is_taken,
            "stopped: {is_stopped}"
        );
        let displaced = |event: &Event| matches!(event, Event::Displaced { claim } if claim.ticket == waiting[0]);
        assert_eq!(events.iter().any(displaced), is_taken);
    }
}

#[test]
fn a_caller_that_does_not_wait_asks_the_holder_to_stop_all_the_same() {
    let (mut entry, holder, _) = line_of(0);
    let forces = Request {
        patience: Patience::AtOnce,
        force: Force::Asked,
        ..request("forces", Terms::default())
    };
    let entering = enter(&mut entry, forces, &at(1));
    assert!(matches!(entering, Entering::Refused(_)), "{entering:?}");
    assert!(entry.is_cancelled(holder));
}

#[test]
fn force_that_ends_a_hold_takes_the_places_of_waiters_only_for_a_queue_of_one() {
    for queueing in [Queueing::Fifo, Queueing::Single] {
        let mut entry = Entry::default();
        let holder = Request {
            kind: Kind::Detached,
            ..request("holder", Terms::default())
        };
        let held = enter(&mut entry, holder, &at(0));
        assert!(matches!(held, Entering::Granted { .. }), "{held:?}");
        let single = Terms {
            queueing: Queueing::Single,
            ..Terms::default()
        };
        let Entering::Queued { ticket, .. } = enter(&mut entry, request("w", single), &at(0))
        else {
            panic!("it is held");
        };
        let forces = Request {
            force: Force::Confirmed,
            ..request(
                "forces",
                Terms {
                    queueing,
                    ..Terms::default()
                },
            )
        };
        let entering = enter(&mut entry, forces, &at(1));
        assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
        assert_eq!(entry.is_cancelled(ticket), queueing == Queueing::Single);
    }
}

/// Force ends the detached hold alone. The supervised one stays, and slots of another number are not beside it.
#[test]
fn force_grants_nothing_beside_a_hold_that_it_may_not_end() {
    let (run, detached) = (Kind::Kernel, Kind::Detached);
    for (patience, kinds) in [
        (Patience::AtOnce, [run, detached]),
        (Patience::Queue, [run, detached]),
        (Patience::Queue, [detached, run]),
    ] {
        let (mut entry, mut holders, _) = slots_of(&kinds, 3, 0);
        if kinds == [detached, run] {
            holders.reverse();
        }
        let forces = Request {
            patience,
            force: Force::Confirmed,
            ..request("forces", in_slots(2))
        };
        let entering = enter(&mut entry, forces, &at(1));
        let waits = matches!(entering, Entering::Queued { .. });
        assert!(
            waits || matches!(entering, Entering::Refused(_)),
            "{entering:?}"
        );
        assert_eq!(waits, patience == Patience::Queue);
        assert!(entry.claim(holders[0]).is_some(), "the supervised one");
        // A caller that does not wait for that one ends none.
        assert_eq!(entry.claim(holders[1]).is_some(), !waits);
    }
}

/// Force ends the detached hold alone. The runs that stay are as many as the slots that the caller names.
#[test]
fn force_gets_no_slot_where_holds_that_it_may_not_end_take_them_all() {
    let mut entry = Entry::default();
    let shared = Terms {
        mode: Mode::Shared,
        ..Terms::default()
    };
    for (id, kind) in [
        ("detached", Kind::Detached),
        ("first", Kind::Kernel),
        ("second", Kind::Kernel),
    ] {
        let reader = Request {
            kind,
            ..request(id, shared)
        };
        let entering = enter(&mut entry, reader, &at(0));
        assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
    }
    let forces = Request {
        force: Force::Confirmed,
        ..request("forces", in_slots(2))
    };
    let entering = enter(&mut entry, forces, &at(1));
    assert!(matches!(entering, Entering::Queued { .. }), "{entering:?}");
    assert_eq!(entry.granted().count(), 2, "the runs");
}

/// A newcomer ends as few holders as it needs, the oldest first; one that was asked before is on its way out already.
#[test]
fn a_newcomer_ends_only_whom_it_needs() {
    let exclusive = Terms::default();
    let shared = Terms {
        mode: Mode::Shared,
        ..Terms::default()
    };
    let (two, three) = (in_slots(2), in_slots(3));
    // The holders, which of them were asked before, what is wanted, and which of them are asked after.
    for (holders, before, wanted, after) in [
        (vec![three; 3], vec![], three, vec![0]),
        (vec![three; 3], vec![1], three, vec![1]),
        (vec![three; 3], vec![2, 1], three, vec![1, 2]),
        (vec![three; 2], vec![], three, vec![]),
        (vec![three; 3], vec![], exclusive, vec![0, 1, 2]),
        (vec![three; 3], vec![], two, vec![0, 1, 2]),
        (vec![three; 3], vec![], shared, vec![0]),
        (vec![shared; 4], vec![], shared, vec![]),
        (vec![shared; 4], vec![], exclusive, vec![0, 1, 2, 3]),
        (vec![shared; 4], vec![], two, vec![0, 1, 2]),
        (vec![shared, shared, two], vec![], two, vec![0, 1]),
        (vec![exclusive], vec![], shared, vec![0]),
    ] {
        let (mut entry, mut tickets) = (Entry::default(), Vec::new());
        for (number, terms) in holders.iter().enumerate() {
            let Entering::Granted { ticket, .. } = enter(
                &mut entry,
                request(
                    &format!("h{number}"),
                    Terms {
                        mode: Mode::Shared,
                        ..*terms
                    },
                ),
                &at(0),
            ) else {
                panic!("room for {number} of {holders:?}");
            };
            entry.claim_mut(ticket).expect("it holds").mode = terms.mode;
            tickets.push(ticket);
        }
        for index in &before {
            assert!(entry.ask_to_stop(tickets[*index], "earlier", &at(0)));
        }
        let terms = Terms {
            queueing: Queueing::Single,
            cancel_in_progress: true,
            ..wanted
        };
        let _ = enter(&mut entry, request("newcomer", terms), &at(1));
        let asked: Vec<usize> = (0..tickets.len())
            .filter(|index| entry.is_cancelled(tickets[*index]))
            .collect();
        assert_eq!(
            asked, after,
            "{wanted:?} beside {holders:?}, {before:?} asked"
        );
    }
}

/// Confirmed force ends detached holds; it ends as few as it needs as well.
#[test]
fn force_overrides_only_whom_it_needs() {
    let (mut entry, holders, _) = slots_of(&[Kind::Detached, Kind::Detached], 2, 1);
    let forced = Request {
        force: Force::Confirmed,
        kind: Kind::Detached,
        ..request("forced", in_slots(2))
    };
    let entering = enter(&mut entry, forced, &at(1));
    assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
    assert!(entry.claim(holders[0]).is_none(), "the oldest");
    assert!(entry.claim(holders[1]).is_some(), "no further one");
}
