//! Single rules of the core, each at its edge: what a change of one operator would break. Most were
//! found missing by mutation testing (`scripts/mutants`, `docs/mutants.md`).
#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use tenure_core::{
    Beacon, Cancel, Claim, Death, Entering, Entry, Evidence, Force, Holder, Host, Kind, Left, Life,
    Liveness, Now, Patience, Policy, Process, Reason, Request, RequestId, StaleReason, Stamp,
    Standing, Terms, judge,
};

const BOOT: &str = "boot-a";
const DEAD: Liveness = Liveness::Dead(Death::Gone);

fn at(ms: u64) -> Now {
    Now {
        wall_us: (1_000_000_000_000 + ms) * 1_000,
        boot_ms: 1_000_000 + ms,
        boot_id: BOOT.to_owned(),
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
            host: Host {
                boot_id: Some(BOOT.to_owned()),
                ..Host::default()
            },
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

fn evidence(beacon: Beacon, process: Liveness, command: Liveness) -> Evidence {
    Evidence {
        beacon,
        process,
        command,
    }
}

fn lit(_: &Claim) -> Evidence {
    evidence(Beacon::Lit, Liveness::Alive, Liveness::NotRecorded)
}

fn dead(_: &Claim) -> Evidence {
    evidence(Beacon::Out, DEAD, Liveness::NotRecorded)
}

fn enter(entry: &mut Entry, policy: &Policy, request: Request, now: &Now) -> Entering {
    entry.enter(policy, request, now, lit, &mut Vec::new())
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
    let (lit, out) = (Beacon::Lit, Beacon::Out);
    let (alive, none) = (Liveness::Alive, Liveness::NotRecorded);
    let orphaned = Standing::Held(Life::Orphaned);
    let supervised = Standing::Held(Life::Supervised);
    assert_eq!(judged(evidence(lit, DEAD, none)), orphaned);
    assert_eq!(judged(evidence(lit, DEAD, alive)), orphaned);
    assert_eq!(judged(evidence(out, DEAD, alive)), orphaned);
    assert_eq!(judged(evidence(lit, alive, none)), supervised);
    assert_eq!(judged(evidence(lit, Liveness::Unknown, none)), supervised);
    // Out proves it, whatever the number of the process says.
    let gone = Standing::Stale(StaleReason::BeaconOut);
    assert_eq!(judged(evidence(out, alive, none)), gone);
    assert_eq!(judged(evidence(out, alive, DEAD)), gone);
}

/// Where no beacon is asked for, a living command makes an orphan all the same.
#[test]
fn an_orphan_is_one_in_every_format() {
    let run = hold(Kind::Kernel);
    let found = evidence(Beacon::Out, DEAD, Liveness::Alive);
    assert_eq!(
        judge(&Policy::SPRINT, &run, &found, &at(0)),
        Standing::Held(Life::Orphaned)
    );
}

/// It will go, and gives up its place now.
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
        at: Stamp::default(),
    });
    let (standing, claim) = entry.standing(&Policy::NATIVE, &at(0), lit);
    assert_eq!((standing, claim), (Standing::Free, None));
}

#[test]
fn a_command_that_cannot_be_seen_counts_for_as_long_as_the_lease() {
    let run = hold(Kind::Kernel);
    let found = evidence(Beacon::Out, DEAD, Liveness::Unknown);
    let judged = |ms| judge(&Policy::NATIVE, &run, &found, &at(ms));
    assert!(matches!(judged(10_000), Standing::Held(_)), "not over yet");
    assert_eq!(judged(10_001), Standing::Stale(StaleReason::Silent));
}

#[test]
fn a_detached_hold_is_not_judged_by_a_beacon() {
    let detached = hold(Kind::Detached);
    let found = evidence(Beacon::Out, Liveness::Alive, Liveness::NotRecorded);
    assert_eq!(
        judge(&Policy::NATIVE, &detached, &found, &at(0)),
        Standing::Held(Life::Detached)
    );
}

#[test]
fn an_age_is_counted_in_the_units_of_its_format_up_to_its_edge() {
    let claim = hold(Kind::Detached);
    let none = evidence(Beacon::None, Liveness::NotRecorded, Liveness::NotRecorded);
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
fn a_beacon_is_a_sign_of_life_where_processes_are_asked_and_its_absence_is_none_of_death() {
    let run = hold(Kind::Kernel);
    let judged = |found| judge(&Policy::SPRINT, &run, &found, &at(0));
    let lit = evidence(Beacon::Lit, DEAD, Liveness::NotRecorded);
    assert!(matches!(judged(lit), Standing::Held(_)), "it is lit");
    let out = evidence(Beacon::Out, DEAD, Liveness::NotRecorded);
    assert!(
        matches!(judged(out), Standing::Stale(_)),
        "its process is dead"
    );
    let alive = evidence(Beacon::Out, Liveness::Alive, Liveness::NotRecorded);
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
    // Whoever waits under an id holds nothing by it.
    enter(&mut entry, &native, queued("b", Kind::Detached), &now);
    let waits = enter(&mut entry, &native, request("b", Kind::Detached), &now);
    assert!(matches!(waits, Entering::Refused(_)), "{waits:?}");
    // A run under the same id is not a detached hold.
    let mut run = Entry::default();
    enter(&mut run, &native, request("a", Kind::Kernel), &now);
    let beside = enter(&mut run, &native, request("a", Kind::Detached), &now);
    assert!(matches!(beside, Entering::Refused(_)), "{beside:?}");
    // A format in which nobody's again is anything else than held.
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
    let may = |policy: &Policy, force, silent_ms| {
        Entry::replace_unreadable(policy, force, silent_ms).map_err(|refusal| refusal.reason)
    };
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
        at: Stamp::default(),
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
    // A sprint's dead hold is somebody's decision; who merely waited is gone.
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
        alive.sweep(&Policy::NATIVE, &at(0), lit).is_empty(),
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
        None => lit(claim),
    };
    let (standing, claim) = entry.standing(&Policy::NATIVE, &at(0), second);
    assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
    assert_eq!(
        claim.map(|claim| claim.holder.request_id.as_str()),
        Some("b")
    );
}
