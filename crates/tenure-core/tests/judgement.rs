//! Single rules of the core, each at its edge: what a change of one operator would break. Most were
//! found missing by mutation testing (`scripts/mutants`, `docs/internals/mutants.md`).
#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use tenure_core::{
    Attempt, Cancel, Claim, Death, Effect, Entering, Entry, Evidence, Force, History, Holder, Host,
    Input, Kind, Left, Life, Liveness, LivenessLock, Mode, Now, Outcome, Ownership, Patience,
    Policy, Predecessor, Process, RETRY_CEILING_MS, RETRY_FLOOR_MS, Reason, Released, Request,
    RequestId, Silence, StaleReason, Standing, Terms, TryGrant, free_in_ms, judge, retry_after_ms,
};

const BOOT: &str = "boot-a";
const DEAD: Liveness = Liveness::Dead(Death::Gone);

fn at(ms: u64) -> Now {
    Now {
        wall_us: (1_000_000_000_000 + ms) * 1_000,
        boot_ms: 1_000_000 + ms,
        boot_id: BOOT.into(),
    }
}

fn request(id: &str, kind: Kind) -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new(id).expect("an id"),
            actor: String::new(),
            process: None,
            command: None,
            host: Arc::new(Host {
                boot_id: Some(BOOT.to_owned()),
                ..Host::default()
            }),
            why: String::new(),
        },
        kind,
        ttl_ms: 10_000,
        force: Force::No,
        patience: Patience::AtOnce,
        terms: Terms::default(),
    }
}

fn queued(id: &str, kind: Kind) -> Request {
    Request {
        patience: Patience::Queue,
        ..request(id, kind)
    }
}

fn evidence(liveness_lock: LivenessLock, process: Liveness, command: Liveness) -> Evidence {
    Evidence {
        liveness_lock,
        process,
        command,
    }
}

fn lives(_: &Claim) -> Evidence {
    evidence(LivenessLock::Held, Liveness::Alive, Liveness::NotRecorded)
}

fn dead(_: &Claim) -> Evidence {
    evidence(LivenessLock::Released, DEAD, Liveness::NotRecorded)
}

fn enter(entry: &mut Entry, policy: &Policy, request: Request, now: &Now) -> Entering {
    entry.enter(policy, request, now, lives, &mut Vec::new())
}

/// A hold of this kind, granted at 0.
fn hold(kind: Kind) -> Claim {
    let mut entry = Entry::default();
    enter(&mut entry, &Policy::NATIVE, request("a", kind), &at(0));
    entry.claims.pop().expect("a claim")
}

#[test]
fn a_run_whose_supervisor_is_dead_is_an_orphan_while_anything_of_it_lives() {
    let run = hold(Kind::Kernel);
    let judged = |found| judge(&Policy::NATIVE, &run, &found, &at(0));
    let (held, released) = (LivenessLock::Held, LivenessLock::Released);
    let (alive, none) = (Liveness::Alive, Liveness::NotRecorded);
    let orphaned = Standing::Held(Life::Orphaned);
    let supervised = Standing::Held(Life::Supervised);
    assert_eq!(judged(evidence(held, DEAD, none)), orphaned);
    assert_eq!(judged(evidence(held, DEAD, alive)), orphaned);
    assert_eq!(judged(evidence(released, DEAD, alive)), orphaned);
    // The supervisor lives still, and let go: its command has no supervisor any more.
    assert_eq!(judged(evidence(released, alive, alive)), orphaned);
    assert_eq!(judged(evidence(held, alive, none)), supervised);
    assert_eq!(judged(evidence(held, Liveness::Unknown, none)), supervised);
    // Out proves it, whatever the number of the process says.
    let gone = Standing::Stale(StaleReason::LivenessLockReleased);
    assert_eq!(judged(evidence(released, alive, none)), gone);
    assert_eq!(judged(evidence(released, alive, DEAD)), gone);
}

/// Over a network no process proves anything: clones of one machine share all by which it is known.
#[test]
fn a_lease_alone_decides_whatever_is_seen_of_processes() {
    let seen = [
        Liveness::Alive,
        DEAD,
        Liveness::Unknown,
        Liveness::NotRecorded,
    ];
    for kind in [Kind::Kernel, Kind::Detached] {
        let claim = hold(kind);
        for (process, command) in seen.iter().flat_map(|one| seen.map(|other| (*one, other))) {
            let judged = |lock| {
                judge(
                    &Policy::NATIVE,
                    &claim,
                    &evidence(lock, process, command),
                    &at(0),
                )
            };
            let lapsed = judged(LivenessLock::Lapsed);
            assert_eq!(lapsed, Standing::Stale(StaleReason::Silent));
            assert!(matches!(judged(LivenessLock::Held), Standing::Held(_)));
        }
    }
}

/// A waiter that was killed while its lease runs has no work that goes on.
#[test]
fn a_waiting_claim_is_no_orphan() {
    let mut waiter = hold(Kind::Kernel);
    waiter.token = None;
    let found = evidence(LivenessLock::Held, DEAD, Liveness::NotRecorded);
    let judged = judge(&Policy::NATIVE, &waiter, &found, &at(0));
    assert_eq!(judged, Standing::Held(Life::Supervised));
}

/// Where no liveness lock is asked for, a living command makes an orphan all the same.
#[test]
fn an_orphan_is_one_in_every_format() {
    let run = hold(Kind::Kernel);
    let found = evidence(LivenessLock::Released, DEAD, Liveness::Alive);
    assert_eq!(
        judge(&Policy::SPRINT, &run, &found, &at(0)),
        Standing::Held(Life::Orphaned)
    );
}

/// The waiter will go, and gives up its place now.
#[test]
fn who_waits_and_is_asked_to_leave_stands_in_nobody_s_way() {
    let mut entry = Entry::default();
    for id in ["a", "b"] {
        enter(
            &mut entry,
            &Policy::NATIVE,
            queued(id, Kind::Kernel),
            &at(0),
        );
    }
    let holder = entry.claims.first().expect("a claim").ticket;
    entry.leave(holder, &at(0));
    entry.claims.first_mut().expect("a claim").cancel = Some(Cancel {
        by: "x".to_owned(),
        ..Cancel::default()
    });
    let (standing, claim) = entry.standing(&Policy::NATIVE, &at(0), lives);
    assert_eq!((standing, claim), (Standing::Free, None));
}

#[test]
fn a_command_that_cannot_be_seen_counts_for_as_long_as_the_lease() {
    let run = hold(Kind::Kernel);
    let found = evidence(LivenessLock::Released, DEAD, Liveness::Unknown);
    let judged = |ms| judge(&Policy::NATIVE, &run, &found, &at(ms));
    assert!(matches!(judged(10_000), Standing::Held(_)), "not over yet");
    assert_eq!(judged(10_001), Standing::Stale(StaleReason::Silent));
}

#[test]
fn a_detached_hold_is_not_judged_by_a_liveness_lock() {
    let detached = hold(Kind::Detached);
    let found = evidence(
        LivenessLock::Released,
        Liveness::Alive,
        Liveness::NotRecorded,
    );
    assert_eq!(
        judge(&Policy::NATIVE, &detached, &found, &at(0)),
        Standing::Held(Life::Detached)
    );
}

#[test]
fn an_age_is_counted_in_the_units_of_its_format_up_to_its_edge() {
    let claim = hold(Kind::Detached);
    let none = evidence(
        LivenessLock::None,
        Liveness::NotRecorded,
        Liveness::NotRecorded,
    );
    let is_held =
        |policy: &Policy, ms| matches!(judge(policy, &claim, &none, &at(ms)), Standing::Held(_));
    // Whole seconds, more than the ttl.
    assert!(is_held(&Policy::FLEET, 10_000) && is_held(&Policy::FLEET, 10_999));
    assert!(!is_held(&Policy::FLEET, 11_000));
    // Milliseconds, the limit itself is too old.
    assert!(is_held(&Policy::SESSION, 599_999));
    assert!(!is_held(&Policy::SESSION, 600_000));
}

#[test]
fn a_held_liveness_lock_is_life_where_processes_are_asked_and_a_released_one_is_not_death() {
    let run = hold(Kind::Kernel);
    let judged = |found| judge(&Policy::SPRINT, &run, &found, &at(0));
    let held = evidence(LivenessLock::Held, DEAD, Liveness::NotRecorded);
    assert!(matches!(judged(held), Standing::Held(_)), "it is held");
    let out = evidence(LivenessLock::Released, DEAD, Liveness::NotRecorded);
    assert!(
        matches!(judged(out), Standing::Stale(_)),
        "its process is dead"
    );
    let alive = evidence(
        LivenessLock::Released,
        Liveness::Alive,
        Liveness::NotRecorded,
    );
    assert!(
        matches!(judged(alive), Standing::Held(_)),
        "its process lives"
    );
}

#[test]
fn asking_again_is_answered_for_the_own_detached_hold_and_no_other() {
    let (native, now) = (Policy::NATIVE, at(0));
    let mut entry = Entry::default();
    let Entering::Granted { token, .. } =
        enter(&mut entry, &native, request("a", Kind::Detached), &now)
    else {
        panic!("it is free");
    };
    let again = enter(&mut entry, &native, request("a", Kind::Detached), &now);
    assert!(
        matches!(again, Entering::Yours { token: same, .. } if same == token),
        "{again:?}"
    );
    let other = enter(&mut entry, &native, request("b", Kind::Detached), &now);
    assert!(matches!(other, Entering::Refused(_)), "{other:?}");
    // A caller that waits under an id holds nothing by it.
    enter(&mut entry, &native, queued("b", Kind::Detached), &now);
    let waits = enter(&mut entry, &native, request("b", Kind::Detached), &now);
    assert!(matches!(waits, Entering::Refused(_)), "{waits:?}");
    // A run under the same id is not a detached hold.
    let mut run = Entry::default();
    enter(&mut run, &native, request("a", Kind::Kernel), &now);
    let beside = enter(&mut run, &native, request("a", Kind::Detached), &now);
    assert!(matches!(beside, Entering::Refused(_)), "{beside:?}");
    // A format in which the owner that asks again is answered only that the lock is held.
    let mut sprint = Entry::default();
    enter(
        &mut sprint,
        &Policy::SPRINT,
        request("a", Kind::Detached),
        &now,
    );
    let again = enter(
        &mut sprint,
        &Policy::SPRINT,
        request("a", Kind::Detached),
        &now,
    );
    assert!(matches!(again, Entering::Refused(_)), "{again:?}");
}

#[test]
fn what_cannot_be_read_is_replaced_by_the_rule_of_its_format() {
    let judged = |policy: &Policy, force, silent_ms, ttl_ms| {
        let silence = Silence { silent_ms, ttl_ms };
        Entry::replace_unreadable(policy, force, silence).map_err(|refusal| refusal.reason)
    };
    let may = |policy: &Policy, force, silent_ms| judged(policy, force, silent_ms, 0);
    assert!(may(&Policy::NATIVE, Force::No, u64::MAX).is_err());
    assert_eq!(may(&Policy::NATIVE, Force::Asked, 0), Ok(()));
    assert_eq!(may(&Policy::SESSION, Force::No, 0), Ok(()));
    let ttl = Policy::FLEET.detached_ttl_ms;
    assert_eq!(
        may(&Policy::FLEET, Force::Asked, ttl),
        Err(Reason::Unreadable),
        "not older than its ttl"
    );
    assert_eq!(may(&Policy::FLEET, Force::Asked, ttl + 1), Ok(()));
    assert!(
        may(&Policy::FLEET, Force::No, ttl + 1).is_err(),
        "old, and unasked"
    );
    for (silent_ms, own_ttl_ms, is_old) in [
        (ttl + 1, ttl * 4, false),
        (ttl * 4, ttl * 4, false),
        (ttl * 4 + 1, ttl * 4, true),
        (1_000, 1_000, false),
        (1_001, 1_000, true),
        (u64::MAX - 1, u64::MAX, false),
    ] {
        assert_eq!(
            judged(&Policy::FLEET, Force::Confirmed, silent_ms, own_ttl_ms).is_ok(),
            is_old,
            "silent for {silent_ms}, of {own_ttl_ms}"
        );
    }
}

#[test]
fn only_a_run_is_kept_by_a_process_of_ours() {
    assert!(!Kind::Kernel.is_detached());
    for kind in [Kind::Detached, Kind::Foreign, Kind::Sealed] {
        assert!(kind.is_detached(), "{kind:?}");
    }
}

#[test]
fn the_counter_follows_a_clock_that_can_be_believed_and_never_goes_back() {
    let drawn = |wall_us| {
        let mut entry = Entry::default();
        let now = Now { wall_us, ..at(0) };
        enter(
            &mut entry,
            &Policy::NATIVE,
            request("a", Kind::Detached),
            &now,
        );
        entry.claims.first().expect("a claim").ticket
    };
    let latest = (1 << 52) - 1;
    assert_eq!(drawn(latest), latest, "the latest that is believed");
    assert_eq!(drawn(latest + 1), 1, "beyond it the clock is not asked");
    let mut entry = Entry::default();
    entry.raise(7);
    assert_eq!(entry.last, 7);
    entry.raise(5);
    assert_eq!(entry.last, 7, "it never falls");
}

#[test]
fn the_front_is_whoever_holds_or_else_whoever_is_first_in_line() {
    let mut entry = Entry::default();
    assert_eq!(entry.front(), None);
    for id in ["a", "b", "c"] {
        enter(
            &mut entry,
            &Policy::NATIVE,
            queued(id, Kind::Kernel),
            &at(0),
        );
    }
    let front = |entry: &Entry| {
        entry
            .front()
            .map(|claim| claim.holder.request_id.to_string())
    };
    assert_eq!(front(&entry).as_deref(), Some("a"), "it holds");
    let first = entry.claims.first().expect("a claim").ticket;
    assert_eq!(entry.leave(first, &at(0)), Left::Released { held_ms: 0 });
    assert_eq!(front(&entry).as_deref(), Some("b"), "it waits longest");
    let cancel = Cancel {
        by: "x".to_owned(),
        ..Cancel::default()
    };
    entry.claims.first_mut().expect("a claim").cancel = Some(cancel);
    assert_eq!(front(&entry).as_deref(), Some("c"), "b is asked to leave");
}

#[test]
fn a_command_is_named_in_its_own_claim() {
    let mut entry = Entry::default();
    enter(
        &mut entry,
        &Policy::NATIVE,
        request("a", Kind::Kernel),
        &at(0),
    );
    let ticket = entry.claims.first().expect("a claim").ticket;
    let command = Process {
        pid: 9,
        started: None,
    };
    assert!(entry.name_command(ticket, command));
    assert_eq!(
        entry.claims.first().expect("a claim").holder.command,
        Some(command)
    );
    assert!(
        !entry.name_command(ticket + 1, command),
        "there is no such claim"
    );
}

#[test]
fn the_length_of_past_holds_is_their_mean() {
    let mut entry = Entry::default();
    let mut now = 0;
    for length in [100, 300, 500] {
        enter(
            &mut entry,
            &Policy::NATIVE,
            request("a", Kind::Kernel),
            &at(now),
        );
        now += length;
        let ticket = entry.claims.first().expect("a claim").ticket;
        entry.leave(ticket, &at(now));
    }
    assert_eq!((entry.history.holds, entry.history.mean_ms), (3, 300));
}

#[test]
fn a_sweep_takes_what_anybody_may_take_and_leaves_the_rest() {
    let claims = |policy: &Policy| {
        let mut entry = Entry::default();
        for id in ["holds", "waits"] {
            enter(
                &mut entry,
                &Policy::NATIVE,
                queued(id, Kind::Kernel),
                &at(0),
            );
        }
        let swept = entry.sweep(policy, &at(0), dead);
        let ids = |claims: &[Claim]| -> Vec<String> {
            claims
                .iter()
                .map(|claim| claim.holder.request_id.to_string())
                .collect()
        };
        (ids(&swept), ids(&entry.claims))
    };
    let both = vec!["holds".to_owned(), "waits".to_owned()];
    assert_eq!(claims(&Policy::NATIVE), (both, vec![]));
    // A person decides about a sprint's dead hold; a claim that only waited is gone.
    let (swept, left) = claims(&Policy::SPRINT);
    assert_eq!(
        (swept, left),
        (vec!["waits".to_owned()], vec!["holds".to_owned()])
    );
    let mut alive = Entry::default();
    enter(
        &mut alive,
        &Policy::NATIVE,
        request("a", Kind::Kernel),
        &at(0),
    );
    assert!(
        alive.sweep(&Policy::NATIVE, &at(0), lives).is_empty(),
        "it lives"
    );
}

#[test]
fn the_standing_names_the_first_that_is_left_behind_unless_somebody_lives() {
    let mut entry = Entry::default();
    for id in ["a", "b"] {
        enter(
            &mut entry,
            &Policy::NATIVE,
            queued(id, Kind::Kernel),
            &at(0),
        );
    }
    let (standing, claim) = entry.standing(&Policy::NATIVE, &at(0), dead);
    assert!(matches!(standing, Standing::Stale(_)), "{standing:?}");
    assert_eq!(
        claim.map(|claim| claim.holder.request_id.as_str()),
        Some("a")
    );
    let second = |claim: &Claim| match claim.token {
        Some(_) => dead(claim),
        None => lives(claim),
    };
    let (standing, claim) = entry.standing(&Policy::NATIVE, &at(0), second);
    assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
    assert_eq!(
        claim.map(|claim| claim.holder.request_id.as_str()),
        Some("b")
    );
}

// The claims that block each other, and what a waiter sleeps on.

fn of_mode(id: &str, mode: Mode) -> Request {
    let terms = Terms {
        mode,
        ..Terms::default()
    };
    Request {
        terms,
        ..queued(id, Kind::Kernel)
    }
}

fn two_slots() -> Mode {
    Mode::Slots(2.try_into().expect("more than none"))
}

/// Enters these one after the other, all alive, in the native row. Their tickets, in that order.
fn line(entry: &mut Entry, requests: Vec<Request>) -> Vec<u64> {
    let enters = |request| match enter(entry, &Policy::NATIVE, request, &at(0)) {
        Entering::Granted { ticket, .. } | Entering::Queued { ticket, .. } => ticket,
        other => panic!("it has a place: {other:?}"),
    };
    requests.into_iter().map(enters).collect()
}

fn sleeps_on(entering: &Entering) -> &Predecessor {
    match entering {
        Entering::Queued { behind, .. } => behind,
        other => panic!("it waits: {other:?}"),
    }
}

#[test]
fn a_reader_passes_no_writer_that_came_first_and_waits_for_none_that_came_later() {
    let mut entry = Entry::default();
    let tickets = line(
        &mut entry,
        vec![
            of_mode("reads", Mode::Shared),
            of_mode("writes", Mode::Exclusive),
        ],
    );
    let late = enter(
        &mut entry,
        &Policy::NATIVE,
        of_mode("late", Mode::Shared),
        &at(0),
    );
    // The writer has to end before anything changes for it: the reader's end would tell it nothing.
    assert_eq!(
        *sleeps_on(&late),
        Predecessor::LivenessLock { ticket: tickets[1] },
        "behind the writer"
    );

    let mut entry = Entry::default();
    let tickets = line(
        &mut entry,
        vec![
            of_mode("writes", Mode::Exclusive),
            of_mode("reads", Mode::Shared),
            of_mode("writes-next", Mode::Exclusive),
        ],
    );
    entry.leave(tickets[0], &at(0));
    let reader = entry.try_grant(&Policy::NATIVE, tickets[1], &at(0), lives, &mut Vec::new());
    assert!(matches!(reader, TryGrant::Granted { .. }), "{reader:?}");
}

#[test]
fn behind_full_slots_one_sleeps_on_who_waits_and_the_first_of_them_on_all_who_hold() {
    let mut entry = Entry::default();
    let slot = |id| of_mode(id, two_slots());
    let tickets = line(&mut entry, vec![slot("a"), slot("b")]);
    let first = enter(&mut entry, &Policy::NATIVE, slot("first"), &at(0));
    let Predecessor::AnyOf(holders) = sleeps_on(&first) else {
        panic!("any of those who hold: {first:?}");
    };
    let holders: Vec<u64> = holders.iter().map(|claim| claim.ticket).collect();
    assert_eq!(holders, tickets);
    let Entering::Queued { ticket: first, .. } = first else {
        panic!("it waits");
    };
    let next = enter(&mut entry, &Policy::NATIVE, slot("next"), &at(0));
    assert_eq!(*sleeps_on(&next), Predecessor::Turn { ticket: first });
}

/// A liveness lock wakes no waiter whose predecessor may end while it is held, or never had one.
#[test]
fn a_held_liveness_lock_is_slept_on_and_keeps_the_hold() {
    let unseen = |_: &Claim| evidence(LivenessLock::None, Liveness::Alive, Liveness::NotRecorded);
    let mut entry = Entry::default();
    let run = line(&mut entry, vec![queued("a", Kind::Kernel)])[0];
    let behind = |policy: &Policy, seen: fn(&Claim) -> Evidence| {
        let request = queued("b", Kind::Kernel);
        let entering = (entry.clone()).enter(policy, request, &at(0), seen, &mut Vec::new());
        sleeps_on(&entering).clone()
    };
    let record = Predecessor::Record(Box::new(entry.claims[0].clone()));
    let liveness_lock = Predecessor::LivenessLock { ticket: run };
    assert_eq!(behind(&Policy::NATIVE, lives), liveness_lock);
    assert_eq!(behind(&Policy::NATIVE, unseen), record, "it has none");
    assert_eq!(
        behind(&Policy::SPRINT, lives),
        record,
        "its age ends it too"
    );
}

// Force, patience and looks that differ.

/// A hold that only its owner keeps, and a run that waits for it.
fn held_and_waited_for() -> (Entry, Vec<u64>) {
    let mut entry = Entry::default();
    let requests = vec![
        queued("holds", Kind::Detached),
        queued("waits", Kind::Kernel),
    ];
    let tickets = line(&mut entry, requests);
    (entry, tickets)
}

#[test]
fn a_refusal_and_force_are_about_who_holds_and_not_about_who_waits() {
    let (mut entry, tickets) = held_and_waited_for();
    let refused = enter(
        &mut entry,
        &Policy::NATIVE,
        request("c", Kind::Kernel),
        &at(0),
    );
    let Entering::Refused(refusal) = refused else {
        panic!("it never waits: {refused:?}");
    };
    let blocker = refusal.blocker.map(|claim| claim.ticket);
    assert_eq!(blocker, Some(tickets[0]));

    let forces = Request {
        force: Force::Confirmed,
        ..queued("d", Kind::Kernel)
    };
    let entering = enter(&mut entry, &Policy::NATIVE, forces, &at(0));
    assert!(entry.claim(tickets[0]).is_none(), "its hold is overridden");
    assert!(
        matches!(entering, Entering::Granted { .. }),
        "a caller that forces gets what it has overridden: {entering:?}"
    );
    let waits = entry.claim(tickets[1]).expect("its place is kept");
    assert_eq!((waits.token, &waits.cancel), (None, &None));
}

#[test]
fn force_that_would_not_wait_gets_the_hold_that_it_ends_also_where_others_wait() {
    for waits in [Kind::Kernel, Kind::Detached] {
        let mut entry = Entry::default();
        let requests = vec![queued("holds", Kind::Detached), queued("waits", waits)];
        let tickets = line(&mut entry, requests);
        let forces = Request {
            force: Force::Confirmed,
            ..request("c", Kind::Kernel)
        };
        let entering = enter(&mut entry, &Policy::NATIVE, forces, &at(0));
        let Entering::Granted { ticket, .. } = entering else {
            panic!("it overrides: {entering:?}");
        };
        let left: Vec<u64> = entry.claims.iter().map(|claim| claim.ticket).collect();
        assert_eq!(left, [tickets[1], ticket], "{waits:?}");
        let own = tickets[1];
        let looks = entry.try_grant(&Policy::NATIVE, own, &at(1), lives, &mut Vec::new());
        assert!(
            matches!(looks, TryGrant::Behind(_)),
            "a waiter finds the new holder before it: {looks:?}"
        );
        entry.leave(ticket, &at(2));
        let looks = entry.try_grant(&Policy::NATIVE, own, &at(2), lives, &mut Vec::new());
        assert!(matches!(looks, TryGrant::Granted { .. }), "{looks:?}");
    }
}

#[test]
fn a_run_is_asked_to_stop_by_force_and_whoever_would_not_wait_for_that_is_refused() {
    let mut entry = Entry::default();
    let run = line(&mut entry, vec![queued("a", Kind::Kernel)])[0];
    let forces = |patience| Request {
        force: Force::Asked,
        patience,
        ..request("b", Kind::Kernel)
    };
    let at_once = forces(Patience::AtOnce);
    let refused = enter(&mut entry, &Policy::NATIVE, at_once, &at(0));
    assert!(
        matches!(&refused, Entering::Refused(refusal) if refusal.reason == Reason::Held),
        "{refused:?}"
    );
    assert!(entry.is_cancelled(run), "it is asked all the same");
    let waits = enter(&mut entry, &Policy::NATIVE, forces(Patience::Queue), &at(0));
    assert!(matches!(waits, Entering::Queued { .. }), "{waits:?}");
}

#[test]
fn a_request_to_stop_concerns_its_target_alone_and_the_first_one_stands() {
    let mut entry = Entry::default();
    let tickets = line(
        &mut entry,
        vec![queued("a", Kind::Kernel), queued("b", Kind::Kernel)],
    );
    assert!(entry.ask_to_stop(tickets[1], "x", &at(0)));
    assert!(entry.ask_to_stop(tickets[1], "y", &at(0)));
    assert!(!entry.ask_to_stop(tickets[1] + 1, "x", &at(0)));
    assert_eq!(
        tickets
            .iter()
            .map(|ticket| entry.is_cancelled(*ticket))
            .collect::<Vec<_>>(),
        [false, true]
    );
    let by = entry
        .claim(tickets[1])
        .and_then(|claim| claim.cancel.as_ref());
    assert_eq!(by.map(|cancel| cancel.by.as_str()), Some("x"));
}

/// Evidence is gathered claim by claim, and a process may end in between.
#[test]
fn who_never_waits_is_never_queued_whatever_one_look_and_the_next_have_seen() {
    let mut entry = Entry::default();
    line(&mut entry, vec![queued("a", Kind::Kernel)]);
    let mut looks = 0;
    let ends_after_the_first = |claim: &Claim| {
        looks += 1;
        if looks == 1 {
            lives(claim)
        } else {
            dead(claim)
        }
    };
    let request_at_once = request("b", Kind::Kernel);
    let entering = entry.enter(
        &Policy::NATIVE,
        request_at_once,
        &at(0),
        ends_after_the_first,
        &mut Vec::new(),
    );
    assert!(matches!(entering, Entering::Refused(_)), "{entering:?}");
    assert_eq!(looks, 2, "it was looked at twice");
}

#[test]
fn a_waiter_whose_owner_got_the_lock_by_another_claim_is_told_so() {
    let mut entry = Entry::default();
    let tickets = line(
        &mut entry,
        vec![
            queued("x", Kind::Kernel),
            queued("a", Kind::Detached),
            queued("a", Kind::Detached),
            queued("a", Kind::Kernel),
        ],
    );
    entry.leave(tickets[0], &at(0));
    let mut grant = |place: usize| {
        entry.try_grant(
            &Policy::NATIVE,
            tickets[place],
            &at(0),
            lives,
            &mut Vec::new(),
        )
    };
    assert!(matches!(grant(1), TryGrant::Granted { .. }), "its turn");
    assert!(
        matches!(grant(2), TryGrant::Yours { ticket, .. } if ticket == tickets[1]),
        "one owner, one hold"
    );
    assert!(
        matches!(grant(3), TryGrant::Behind(_)),
        "a run of that name has its own work to do"
    );
}

#[test]
fn among_several_holds_a_release_means_the_caller_s_own() {
    let mut entry = Entry::default();
    let reads = |id| of_mode(id, Mode::Shared);
    let tickets = line(
        &mut entry,
        vec![reads("a"), reads("b"), queued("c", Kind::Kernel)],
    );
    let mut release = |policy: &Policy, who: &str| {
        let owns = |claim: &Claim| {
            if claim.holder.request_id.as_str() == who {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let released = entry.release(policy, owns, &at(700));
        let left: Vec<u64> = entry.granted().map(|claim| claim.ticket).collect();
        (released, left)
    };
    let (refused, left) = release(&Policy::NATIVE, "c");
    assert!(matches!(refused, Released::NotOwner { .. }), "{refused:?}");
    assert_eq!(left, tickets[..2], "a waiter owns no hold");
    let (ignored, left) = release(&Policy::SESSION, "x");
    assert!(matches!(ignored, Released::Ignored { .. }), "{ignored:?}");
    assert_eq!(left, tickets[..2]);
    let (own, left) = release(&Policy::NATIVE, "b");
    assert!(
        matches!(&own, Released::Done { claim, held_ms: 700, by_other: false } if claim.ticket == tickets[1]),
        "{own:?}"
    );
    assert_eq!(left, tickets[..1]);
    let (other, left) = release(&Policy::SPRINT, "x");
    assert!(
        matches!(other, Released::Done { by_other: true, .. }),
        "{other:?}"
    );
    assert_eq!(left, []);
    assert_eq!(release(&Policy::NATIVE, "c").0, Released::Absent);
}

/// A record may say anything: only a token makes a hold.
#[test]
fn a_claim_without_a_token_held_nothing_whatever_else_its_record_says() {
    let mut entry = Entry::default();
    let mut waits = hold(Kind::Detached);
    waits.token = None;
    assert!(waits.since.is_some(), "as if it had held");
    let ticket = waits.ticket;
    entry.claims.push(waits);
    assert_eq!(entry.leave(ticket, &at(500)), Left::Withdrawn);
    assert_eq!(entry.history.holds, 0);
}

#[test]
fn who_keeps_its_place_parks_when_its_time_is_up_and_leaves_when_interrupted() {
    let queued = || {
        let mut attempt = Attempt::start().0.keeping_place();
        let behind = Predecessor::LivenessLock { ticket: 1 };
        let entering = Entering::Queued { ticket: 2, behind };
        let effect = attempt.on(Input::Entered(entering));
        assert!(matches!(effect, Effect::Sleep { .. }), "{effect:?}");
        attempt
    };
    let mut attempt = queued();
    assert_eq!(attempt.on(Input::Expired), Effect::Reserve);
    let told = attempt.on(Input::Left);
    assert_eq!(told, Effect::Finish(Outcome::TimedOut));
    assert_eq!(queued().on(Input::Interrupted), Effect::Leave);
    let mut leaves = Attempt::start().0;
    assert_eq!(
        leaves.on(Input::Expired),
        Effect::Leave,
        "unless it keeps it"
    );
}

// The hint to a refused caller.

/// A hold of this kind, made at 0, for a process or for none, after so many earlier ones.
fn held_after(history: History, kind: Kind, process: Option<Process>) -> Entry {
    let mut entry = Entry {
        history,
        ..Entry::default()
    };
    let mut request = request("a", kind);
    request.holder.process = process;
    line(&mut entry, vec![request]);
    entry
}

const NO_PAST: History = History {
    holds: 0,
    mean_ms: 5_000,
};
const PAST: History = History {
    holds: 1,
    mean_ms: 5_000,
};
const OWNER: Option<Process> = Some(Process {
    pid: 7,
    started: None,
});

#[test]
fn a_hint_is_the_rest_of_a_mean_hold_or_a_quarter_of_its_age_more() {
    let hint = |history, ms| {
        let entry = held_after(history, Kind::Kernel, OWNER);
        retry_after_ms(&entry, &Policy::NATIVE, &at(ms))
    };
    assert_eq!(hint(PAST, 0), 5_000);
    assert_eq!(hint(PAST, 2_000), 3_000);
    assert_eq!(hint(PAST, 5_000), 1_250, "it has lasted as long already");
    assert_eq!(hint(PAST, 8_000), 2_000);
    assert_eq!(hint(NO_PAST, 0), 1_000, "nothing is known");
    assert_eq!(hint(NO_PAST, 8_000), 2_000);
    let free = Entry::default();
    let soonest = retry_after_ms(&free, &Policy::NATIVE, &at(0));
    assert_eq!(soonest, RETRY_FLOOR_MS);
    assert_eq!(hint(PAST, 4_999), RETRY_FLOOR_MS);
    assert_eq!(hint(PAST, 1_000_000_000), RETRY_CEILING_MS);
}

#[test]
fn a_person_is_told_when_a_lock_is_free_where_past_holds_or_a_limit_say_so() {
    let told = |holds, kind, process, ms| {
        let history = History { holds, ..PAST };
        let mut entry = held_after(history, kind, process);
        for claim in &mut entry.claims {
            claim.lease.ttl_ms = 4_500;
        }
        free_in_ms(&entry, &Policy::NATIVE, &at(ms))
    };
    let run = |holds, ms| told(holds, Kind::Kernel, OWNER, ms);
    assert_eq!(run(0, 2_000), None, "no hold has ended");
    assert_eq!(run(2, 2_000), None, "two holds may be of any length");
    assert_eq!(run(3, 2_000), Some(3_000));
    assert_eq!(run(3, 5_000), None, "it has lasted longer than usual");
    let by_ttl = told(1, Kind::Detached, None, 4_000);
    assert_eq!(by_ttl, Some(500), "it ends then, whatever its past");
}

#[test]
fn each_of_those_who_wait_adds_a_mean_hold_to_a_hint() {
    for (history, each) in [(PAST, 5_000), (NO_PAST, 1_000)] {
        let mut entry = held_after(history, Kind::Kernel, OWNER);
        for waiting in 1..3 {
            line(&mut entry, vec![queued("b", Kind::Kernel)]);
            let hint = retry_after_ms(&entry, &Policy::NATIVE, &at(0));
            assert_eq!(hint, each + waiting * each, "{waiting} wait");
        }
    }
}

#[test]
fn a_hint_ends_with_the_ttl_where_nothing_else_ends_the_hold() {
    let long = History {
        holds: 1,
        mean_ms: 60_000,
    };
    let hint = |policy: &Policy, kind, process, ttl_ms| {
        let mut entry = held_after(long, kind, process);
        for claim in &mut entry.claims {
            claim.lease.ttl_ms = ttl_ms;
        }
        retry_after_ms(&entry, policy, &at(4_000))
    };
    let (native, fleet) = (&Policy::NATIVE, &Policy::FLEET);
    let (by_ttl, by_past) = (6_000, 56_000);
    assert_eq!(hint(native, Kind::Detached, None, 10_000), by_ttl);
    assert_eq!(
        hint(native, Kind::Detached, OWNER, 10_000),
        by_past,
        "its owner is watched"
    );
    assert_eq!(
        hint(fleet, Kind::Detached, OWNER, 10_000),
        by_ttl,
        "its owner is never asked for"
    );
    assert_eq!(
        hint(fleet, Kind::Detached, OWNER, 0),
        by_past,
        "it has no ttl"
    );
    assert_eq!(
        hint(native, Kind::Kernel, None, 10_000),
        by_past,
        "a run renews it"
    );
    assert_eq!(
        hint(native, Kind::Detached, None, 3_000),
        RETRY_FLOOR_MS,
        "it is over"
    );
}

/// A detached hold of an agent, granted and renewed at 0: its ttl is 10 s, its age ends it after 5 s.
fn hold_of_an_agent() -> Claim {
    let mut claim = hold(Kind::Detached);
    claim
        .holder
        .set_agent(&"claude/1/a".parse().expect("a key"));
    claim.holder.set_max_age_ms(5_000);
    claim
}

#[test]
fn what_is_kept_of_an_agents_hold_is_read_back_and_replaced_one_by_one() {
    let mut holder = hold(Kind::Detached).holder;
    assert_eq!(
        (holder.agent(), holder.max_age_ms(), holder.path()),
        (None, None, None)
    );
    for (key, max_age_ms, path) in [("claude/1/a", 7, "/a"), ("codex/2", 8, "/b")] {
        holder.set_agent(&key.parse().expect("a key"));
        holder.set_max_age_ms(max_age_ms);
        holder.set_path(path);
        assert_eq!(
            holder.agent().map(|key| key.to_string()).as_deref(),
            Some(key)
        );
        assert_eq!(holder.max_age_ms(), Some(max_age_ms));
        assert_eq!(holder.path(), Some(path));
        assert_eq!(holder.facts.len(), 3);
    }
}

#[test]
fn the_usual_limits_of_an_agents_hold_are_a_quarter_two_and_twenty_four_hours() {
    assert_eq!(tenure_core::SILENCE_MS, 900_000);
    assert_eq!(tenure_core::AGENT_AGE_MS, 7_200_000);
    assert_eq!(tenure_core::AGENT_AGE_MAX_MS, 86_400_000);
}

#[test]
fn a_hold_of_an_agent_ends_by_age_and_by_silence_though_its_host_lives() {
    let (policy, native) = (Policy::NATIVE, lives(&hold(Kind::Detached)));
    let judged = |claim: &Claim, ms| judge(&policy, claim, &native, &at(ms));
    let held = Standing::Held(Life::Detached);
    let mut claim = hold_of_an_agent();
    assert_eq!(judged(&claim, 5_000), held);
    assert_eq!(judged(&claim, 5_001), Standing::Stale(StaleReason::Aged));
    assert_eq!(judged(&claim, 9_000), Standing::Stale(StaleReason::Aged));
    claim.holder.set_max_age_ms(60_000);
    assert_eq!(judged(&claim, 10_000), held);
    assert_eq!(judged(&claim, 10_001), Standing::Stale(StaleReason::Silent));
    // Without an agent its host's life is enough, and only its age ends it.
    let mut plain = hold(Kind::Detached);
    assert_eq!(judged(&plain, 600_000), held);
    plain.holder.set_max_age_ms(60_000);
    assert_eq!(judged(&plain, 60_000), held);
    assert_eq!(judged(&plain, 60_001), Standing::Stale(StaleReason::Aged));
}

#[test]
fn the_rest_of_a_limited_hold_is_the_nearer_of_its_limits() {
    let native = &Policy::NATIVE;
    let mut claim = hold_of_an_agent();
    assert!(claim.ends_by_silence(native));
    assert_eq!(
        claim.limited_ms(native, &at(3_000)),
        Some(2_000),
        "by its age"
    );
    claim.holder.set_max_age_ms(60_000);
    assert_eq!(
        claim.limited_ms(native, &at(3_000)),
        Some(7_000),
        "by silence"
    );
    let mut plain = hold(Kind::Detached);
    assert!(!plain.ends_by_silence(native));
    assert_eq!(plain.limited_ms(native, &at(3_000)), None);
    plain.holder.set_max_age_ms(60_000);
    assert_eq!(plain.limited_ms(native, &at(3_000)), Some(57_000));
    // Neither the hold of a run, nor one that still waits, nor one of a row that asks for no process.
    let mut run = hold_of_an_agent();
    run.kind = Kind::Kernel;
    let mut waits = hold_of_an_agent();
    waits.token = None;
    for (claim, policy) in [(&run, native), (&waits, native), (&claim, &Policy::SESSION)] {
        assert!(!claim.ends_by_silence(policy));
        assert_eq!(claim.limited_ms(policy, &at(3_000)), None);
    }
}

#[test]
fn force_means_something_in_every_row_but_that_of_sessions() {
    let heeds = Policy::ALL.map(|policy| (policy.name, policy.heeds_force()));
    let expected = Policy::ALL.map(|policy| (policy.name, policy.name != "session"));
    assert_eq!(heeds, expected);
}

/// A resume lock whose process cannot be seen from here: its kernel, its command and its own ttl say what is known.
#[test]
fn unseen_holder_of_a_resume_lock_table() {
    let limit = Policy::RESUME.supervised_ttl_ms;
    let mut run = hold(Kind::Kernel);
    run.lease.ttl_ms = limit;
    let mut owned = hold(Kind::Detached);
    owned.lease.ttl_ms = limit;
    let mut chosen = owned.clone();
    chosen.holder.set_ttl_chosen();
    let mut elsewhere = run.clone();
    elsewhere.holder.host = Host::default().into();
    let (unknown, none) = (Liveness::Unknown, Liveness::NotRecorded);
    let (kept, let_go) = (LivenessLock::Held, LivenessLock::Released);
    let silent = Standing::Stale(StaleReason::Silent);
    let gone = Standing::Stale(StaleReason::LivenessLockReleased);
    let held = |kind| Standing::Held(kind);
    let (run_held, owned_held) = (held(Life::Supervised), held(Life::Detached));
    for (what, claim, byte, command, young, old) in [
        ("a killed guard", &run, let_go, none, gone, gone),
        ("its command is gone", &run, let_go, DEAD, gone, gone),
        (
            "its command is unseen",
            &run,
            let_go,
            unknown,
            run_held,
            silent,
        ),
        ("a byte is kept", &run, kept, unknown, run_held, run_held),
        (
            "no byte can be asked",
            &run,
            LivenessLock::None,
            unknown,
            run_held,
            run_held,
        ),
        (
            "on another kernel",
            &elsewhere,
            let_go,
            none,
            run_held,
            run_held,
        ),
        (
            "a script's",
            &owned,
            LivenessLock::None,
            none,
            owned_held,
            owned_held,
        ),
        (
            "a script's, with a ttl",
            &chosen,
            LivenessLock::None,
            none,
            owned_held,
            silent,
        ),
    ] {
        for (at_ms, expected) in [(limit, young), (limit + 1, old)] {
            let found = evidence(byte, unknown, command);
            let standing = judge(&Policy::RESUME, claim, &found, &at(at_ms));
            assert_eq!(standing, expected, "{what} at {at_ms}");
        }
    }
    // What can be seen decides as ever.
    let alive = evidence(let_go, Liveness::Alive, none);
    assert_eq!(
        judge(&Policy::RESUME, &run, &alive, &at(limit * 9)),
        run_held
    );
}
