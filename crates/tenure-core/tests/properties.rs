//! Properties of the list of claims under arbitrary sequences of operations, arbitrary clocks and
//! arbitrary evidence, most of which no real system would produce.
//!
//! What a sequence of steps means for the contenders is `model.rs`'s business.
#![allow(missing_docs, clippy::expect_used)]

use proptest::prelude::*;
use tenure_core::{
    Advance, Attempt, Beacon, Claim, Death, Effect, Entering, Entry, Event, Evidence, Force,
    History, Holder, Host, Input, Kind, Lease, Left, Liveness, Now, Outcome, Ownership, Patience,
    Policy, Predecessor, Process, RETRY_CEILING_MS, RETRY_FLOOR_MS, Reason, Refusal,
    ReleaseByOther, Released, Renewal, Request, RequestId, StaleReason, Stamp, Standing, Takeover,
    judge, retry_after_ms,
};

/// The largest number that every JSON reader keeps exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;
const BOOT: &str = "boot-a";

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 512,
        // A counterexample becomes a test of its own here, not a line in a file of seeds.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// What the properties are asked about.

#[derive(Debug, Clone)]
enum Operation {
    Enter {
        who: u8,
        kind: Kind,
        force: Force,
        patience: Patience,
    },
    /// The operations on a claim name it by its place in the list, or name one that is not there.
    Advance(u8),
    Leave(u8),
    Renew(u8),
    Ask(u8),
    Name(u8),
    Release(u8),
    Sweep,
    Raise(u64),
}

/// One operation, when it happens, and what is seen of each claim at that moment.
#[derive(Debug, Clone)]
struct Step {
    operation: Operation,
    now: Now,
    seen: Vec<Evidence>,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Kernel), Just(Kind::Detached)]
}

fn force() -> impl Strategy<Value = Force> {
    prop_oneof![Just(Force::No), Just(Force::Asked), Just(Force::Confirmed)]
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![
        Just(Patience::Default),
        Just(Patience::AtOnce),
        Just(Patience::Queue)
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    proptest::sample::select(Policy::ALL.to_vec())
}

fn liveness() -> impl Strategy<Value = Liveness> {
    prop_oneof![
        3 => Just(Liveness::Alive),
        1 => Just(Liveness::Dead(Death::Gone)),
        1 => Just(Liveness::Dead(Death::Rebooted)),
        1 => Just(Liveness::Unknown),
        1 => Just(Liveness::NotRecorded),
    ]
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let beacon = prop_oneof![
        2 => Just(Beacon::Lit),
        1 => Just(Beacon::Out),
        1 => Just(Beacon::None),
    ];
    (beacon, liveness(), liveness()).prop_map(|(beacon, process, command)| Evidence {
        beacon,
        process,
        command,
    })
}

/// Clocks as they should be, as they should not be, and around the largest exact number.
fn wall_us() -> impl Strategy<Value = u64> {
    prop_oneof![
        1_700_000_000_000_000_u64..1_900_000_000_000_000,
        0_u64..100,
        (EXACT_MAX - 100)..(EXACT_MAX + 100),
        any::<u64>(),
    ]
}

fn now() -> impl Strategy<Value = Now> {
    let boot_ms = prop_oneof![0_u64..100_000_000, any::<u64>()];
    let boot = prop_oneof![Just(BOOT), Just("boot-b"), Just("")];
    (wall_us(), boot_ms, boot).prop_map(|(wall_us, boot_ms, boot)| Now {
        wall_us,
        boot_ms,
        boot_id: boot.into(),
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let place = || 0_u8..6;
    prop_oneof![
        4 => (0_u8..4, kind(), force(), patience()).prop_map(|(who, kind, force, patience)| {
            Operation::Enter { who, kind, force, patience }
        }),
        4 => place().prop_map(Operation::Advance),
        2 => place().prop_map(Operation::Leave),
        1 => place().prop_map(Operation::Renew),
        1 => place().prop_map(Operation::Ask),
        1 => place().prop_map(Operation::Name),
        1 => (0_u8..4).prop_map(Operation::Release),
        1 => Just(Operation::Sweep),
        1 => (0_u64..EXACT_MAX / 2).prop_map(Operation::Raise),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        operation(),
        now(),
        proptest::collection::vec(evidence(), 1..6),
    );
    let step = step.prop_map(|(operation, now, seen)| Step {
        operation,
        now,
        seen,
    });
    proptest::collection::vec(step, 1..40)
}

fn request_id(who: u8) -> RequestId {
    RequestId::new(format!("r{who}")).expect("a proper request id")
}

fn request(who: u8, kind: Kind, force: Force, patience: Patience) -> Request {
    Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: request_id(who),
            actor: String::new(),
            process: Some(Process {
                pid: u32::from(who) + 1,
                started: None,
            }),
            command: None,
            host: Host {
                boot_id: Some(BOOT.into()),
                ..Host::default()
            },
            why: String::new(),
        },
        kind,
        ttl_ms: 30_000,
        force,
        patience,
        terms: tenure_core::Terms::default(),
    }
}

/// What an operation drew.
#[derive(Debug, Default)]
struct Drawn {
    ticket: Option<u64>,
    token: Option<u64>,
}

/// The ticket in this place, or one that nobody has.
fn ticket_at(entry: &Entry, place: u8) -> u64 {
    let claim = entry.claims.get(usize::from(place));
    claim.map_or(u64::MAX, |claim| claim.ticket)
}

fn apply(entry: &mut Entry, policy: &Policy, step: &Step) -> Drawn {
    let now = &step.now;
    let mut asked = 0;
    // Each question is answered anew, so that a claim may even change while it is being judged.
    let mut seen = |_: &Claim| {
        asked += 1;
        step.seen[asked % step.seen.len()]
    };
    let mut events = Vec::new();
    let mut drawn = Drawn::default();
    match step.operation {
        Operation::Enter {
            who,
            kind,
            force,
            patience,
        } => {
            let request = request(who, kind, force, patience);
            match entry.enter(policy, request, now, seen, &mut events) {
                Entering::Granted { ticket, token } => {
                    drawn.ticket = Some(ticket);
                    drawn.token = Some(token);
                }
                Entering::Queued { ticket, .. } => drawn.ticket = Some(ticket),
                Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {}
            }
        }
        Operation::Advance(place) => {
            let ticket = ticket_at(entry, place);
            let had = entry.claim(ticket).and_then(|claim| claim.token);
            match entry.advance(policy, ticket, now, &mut seen, &mut events) {
                Advance::Granted { token } if had.is_none() => drawn.token = Some(token),
                _ => {}
            }
        }
        Operation::Leave(place) => {
            let _left = entry.leave(ticket_at(entry, place), now);
        }
        Operation::Renew(place) => {
            let _renewal = entry.renew(ticket_at(entry, place), now);
        }
        Operation::Ask(place) => {
            let _there = entry.ask_to_stop(ticket_at(entry, place), "somebody".into(), now);
        }
        Operation::Name(place) => {
            let command = Process {
                pid: 9,
                started: None,
            };
            let _there = entry.name_command(ticket_at(entry, place), command);
        }
        Operation::Release(who) => {
            let owner = request_id(who);
            let _released = entry.release(policy, |claim| owned_by(claim, &owner), now);
        }
        Operation::Sweep => {
            let _swept = entry.sweep(policy, now, seen);
        }
        Operation::Raise(floor) => entry.raise(floor),
    }
    drawn
}

fn owned_by(claim: &Claim, owner: &RequestId) -> Ownership {
    if claim.holder.request_id == *owner {
        Ownership::Shown
    } else {
        Ownership::Missing
    }
}

/// What a record may say of the past, true or not.
fn history() -> impl Strategy<Value = History> {
    let most = History {
        holds: u64::MAX,
        mean_ms: u64::MAX,
    };
    let any = (any::<u64>(), any::<u64>());
    prop_oneof![
        1 => Just(History::default()),
        1 => Just(most),
        4 => any.prop_map(|(holds, mean_ms)| History { holds, mean_ms }),
    ]
}

/// A list as it may stand on a disk, without a story of how it came about, and with as many holds
/// as a shared lock could have.
fn entry() -> impl Strategy<Value = Entry> {
    let claim = (0_u8..4, kind(), any::<bool>(), now(), 0_u64..100_000_000);
    let claims = proptest::collection::vec(claim, 0..6);
    claims.prop_map(|claims| {
        let mut entry = Entry::default();
        for (who, kind, granted, now, ttl_ms) in claims {
            let holder = request(who, kind, Force::No, Patience::Queue).holder;
            entry.last += 2;
            entry.claims.push(Claim {
                ticket: entry.last - 1,
                token: granted.then_some(entry.last),
                kind,
                holder,
                entered: now.stamp(),
                since: granted.then(|| now.stamp()),
                lease: Lease {
                    renewals: 0,
                    ttl_ms,
                    renewed: now.stamp(),
                },
                force: Force::No,
                mode: tenure_core::Mode::Exclusive,
                queueing: tenure_core::Queueing::Fifo,
                grace_ms: 0,
                cancel: None,
                away: None,
                waiting_for: None,
            });
        }
        entry
    })
}

/// A list as the protocol makes it: only the first claim may be granted.
fn queue() -> impl Strategy<Value = Entry> {
    entry().prop_map(|mut entry| {
        for claim in entry.claims.iter_mut().skip(1) {
            claim.token = None;
            claim.since = None;
        }
        entry
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn numbers_only_rise(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        let mut top = 0;
        for step in &steps {
            let before = entry.last;
            let drawn = apply(&mut entry, &policy, step);
            prop_assert!(entry.last >= before, "the counter never falls");
            for number in [drawn.ticket, drawn.token].into_iter().flatten() {
                prop_assert!(number > before, "{number} is above all that was drawn before");
                prop_assert!(number > top, "{number} was never drawn before");
                top = number;
            }
            prop_assert!(entry.last >= top, "the counter covers all that was drawn");
            let tickets: Vec<u64> = entry.claims.iter().map(|claim| claim.ticket).collect();
            prop_assert!(
                tickets.is_sorted_by(|a, b| a < b),
                "tickets are unique and the list is in their order: {tickets:?}"
            );
        }
    }

    /// Readers of JSON that keep numbers as doubles must be able to compare tokens.
    #[test]
    fn numbers_stay_exact_whatever_the_clock_says(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            apply(&mut entry, &policy, step);
            prop_assert!(entry.last <= EXACT_MAX, "{} has more than 53 bits", entry.last);
        }
    }

    #[test]
    fn a_grant_leaves_nobody_in_front(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            let drawn = apply(&mut entry, &policy, step);
            if let Some(token) = drawn.token {
                let mut before = entry.claims.iter();
                let before = before.by_ref().take_while(|claim| claim.token != Some(token));
                let in_line = before.filter(|claim| claim.is_in_line()).count();
                prop_assert_eq!(in_line, 0, "whoever is granted stands before all in line");
            }
        }
    }

    #[test]
    fn a_hold_keeps_its_token(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            let before = entry.clone();
            apply(&mut entry, &policy, step);
            for claim in before.claims.iter().filter(|claim| claim.token.is_some()) {
                if let Some(after) = entry.claim(claim.ticket) {
                    prop_assert_eq!(after.token, claim.token, "a hold has one token for life");
                }
            }
        }
    }

    /// Claims whose beacon is lit, in the row that believes beacons: only their owners, and only
    /// by asking for it, may end them. Detached holds have no beacon, so they are left out.
    #[test]
    fn nobody_ends_a_live_run(steps in steps()) {
        let mut entry = Entry::default();
        let lit = Evidence {
            beacon: Beacon::Lit,
            process: Liveness::Alive,
            command: Liveness::NotRecorded,
        };
        for step in &steps {
            let mut step = Step { seen: vec![lit], ..step.clone() };
            if let Operation::Enter { kind, .. } = &mut step.operation {
                *kind = Kind::Kernel;
            }
            let before = entry.clone();
            apply(&mut entry, &Policy::NATIVE, &step);
            for claim in &before.claims {
                let by_its_owner = match step.operation {
                    Operation::Leave(place) => ticket_at(&before, place) == claim.ticket,
                    Operation::Release(who) => claim.holder.request_id == request_id(who),
                    _ => false,
                };
                prop_assert!(
                    by_its_owner || entry.claim(claim.ticket).is_some(),
                    "{:?} ended the claim {}", step.operation, claim.ticket
                );
            }
        }
    }

    #[test]
    fn a_refused_request_leaves_no_claim(
        policy in policy(),
        entry in entry(),
        force in force(),
        patience in patience(),
        now in now(),
        seen in evidence(),
    ) {
        let mut after = entry.clone();
        let request = request(9, Kind::Kernel, force, patience);
        let entering = after.enter(&policy, request, &now, |_| seen, &mut Vec::new());
        let entered = after.claims.iter().any(|c| c.holder.request_id == request_id(9));
        match entering {
            Entering::Refused(_) => prop_assert!(!entered, "refused, and yet in the list"),
            Entering::Granted { .. } | Entering::Queued { .. } => prop_assert!(entered),
            Entering::Yours { .. } => prop_assert!(false, "nothing of that owner is there"),
            Entering::NotKept => prop_assert!(false, "no place was asked for"),
        }
    }

    /// Who never waits gets the lock or a refusal, and a refusal breaks no live hold.
    #[test]
    fn who_never_waits_is_never_queued(
        policy in policy(),
        entry in queue(),
        force in force(),
        now in now(),
        seen in evidence(),
    ) {
        let mut after = entry.clone();
        let mut events = Vec::new();
        let request = request(9, Kind::Kernel, force, Patience::AtOnce);
        let entering = after.enter(&policy, request, &now, |_| seen, &mut events);
        prop_assert!(!matches!(entering, Entering::Queued { .. }), "queued: {entering:?}");
        let broke = events.iter().any(|event| matches!(
            event,
            Event::Stolen { why: Takeover::Active, .. }
        ));
        let refused = matches!(entering, Entering::Refused(_));
        prop_assert!(!(broke && refused), "a live hold was broken for nothing");
    }

    /// What is not in the list is neither made nor changed by anything that is told its ticket.
    #[test]
    fn an_absent_claim_is_lost(policy in policy(), entry in entry(), now in now(), seen in evidence()) {
        let absent = entry.last + 7;
        let mut after = entry.clone();
        prop_assert_eq!(after.renew(absent, &now), Renewal::Lost);
        prop_assert_eq!(after.leave(absent, &now), Left::Absent);
        prop_assert!(!after.ask_to_stop(absent, "somebody".into(), &now));
        let command = Process { pid: 9, started: None };
        prop_assert!(!after.name_command(absent, command));
        let advance = after.advance(&policy, absent, &now, |_| seen, &mut Vec::new());
        prop_assert_eq!(advance, Advance::Gone);
        prop_assert_eq!(after, entry, "nothing was written");
    }

    /// A claim that only waits has nothing to renew, and a holder hears that it was asked to stop.
    #[test]
    fn a_renewal_never_grants(
        entry in entry(),
        now in now(),
        place in 0_u8..6,
        asked in 0_u8..6,
    ) {
        let ticket = ticket_at(&entry, place);
        let mut entry = entry;
        entry.ask_to_stop(ticket_at(&entry, asked), "somebody".into(), &now);
        let mut after = entry.clone();
        let renewal = after.renew(ticket, &now);
        let token = entry.claim(ticket).and_then(|claim| claim.token);
        let expected = token.map_or(Renewal::Lost, |token| Renewal::Renewed {
            token,
            cancel_requested: entry.is_cancelled(ticket),
        });
        prop_assert_eq!(renewal, expected);
        if token.is_none() {
            prop_assert_eq!(after, entry, "nothing was written");
        }
    }

    #[test]
    fn a_release_ends_nobody_elses_hold(
        policy in policy(),
        entry in entry(),
        now in now(),
        who in 0_u8..5,
    ) {
        let owner = request_id(who);
        let mut after = entry.clone();
        let released = after.release(&policy, |claim| owned_by(claim, &owner), &now);
        let gone: Vec<&Claim> = entry
            .claims
            .iter()
            .filter(|claim| after.claim(claim.ticket).is_none())
            .collect();
        prop_assert!(gone.len() <= 1, "a release ends one hold");
        prop_assert!(gone.iter().all(|claim| claim.token.is_some()), "and no waiter");
        let others = gone.iter().any(|claim| claim.holder.request_id != owner);
        let by_other = policy.release_by_other == ReleaseByOther::WarnAndRelease;
        prop_assert!(!others || by_other, "{:?} by another", policy.release_by_other);
        match released {
            Released::Done { claim, by_other, .. } => {
                prop_assert_eq!(gone, vec![claim.as_ref()]);
                prop_assert_eq!(by_other, claim.holder.request_id != owner);
            }
            Released::Absent => {
                prop_assert!(entry.claims.iter().all(|claim| claim.token.is_none()));
                prop_assert_eq!(after, entry);
            }
            Released::Unreadable { .. } => prop_assert!(false, "a list is never unreadable"),
            Released::NotOwner { .. } | Released::Ignored { .. } => prop_assert_eq!(after, entry),
        }
    }

    /// An owner's release finds the owner's hold, whoever else's stands beside it.
    #[test]
    fn an_owner_can_always_release(policy in policy(), entry in entry(), now in now(), who in 0_u8..4) {
        let owner = request_id(who);
        let has = entry
            .claims
            .iter()
            .any(|claim| claim.token.is_some() && claim.holder.request_id == owner);
        let mut after = entry;
        let released = after.release(&policy, |claim| owned_by(claim, &owner), &now);
        let own = matches!(released, Released::Done { by_other: false, .. });
        prop_assert_eq!(own, has);
    }

    #[test]
    fn a_hint_stays_within_its_bounds(
        policy in policy(), entry in entry(), history in history(), now in now()
    ) {
        let entry = Entry { history, ..entry };
        let hint = retry_after_ms(&entry, &policy, &now);
        prop_assert!((RETRY_FLOOR_MS..=RETRY_CEILING_MS).contains(&hint), "{hint}");
    }

    #[test]
    fn the_mean_of_past_holds_lies_among_them(
        holds in proptest::collection::vec(prop_oneof![0_u64..10_000, any::<u64>()], 1..40),
    ) {
        let mut entry = Entry::default();
        for held_ms in &holds {
            let mut now = Now { wall_us: 0, boot_ms: 0, boot_id: BOOT.into() };
            let request = request(0, Kind::Kernel, Force::No, Patience::AtOnce);
            let nobody = |_: &Claim| Evidence {
                beacon: Beacon::Out,
                process: Liveness::Unknown,
                command: Liveness::Unknown,
            };
            let entering = entry.enter(&Policy::NATIVE, request, &now, nobody, &mut Vec::new());
            let Entering::Granted { ticket, .. } = entering else {
                return Err(TestCaseError::fail("a free lock is granted"));
            };
            now.boot_ms = *held_ms;
            prop_assert_eq!(entry.leave(ticket, &now), Left::Released { held_ms: *held_ms });
        }
        let (least, most) = (holds.iter().min(), holds.iter().max());
        let mean = Some(&entry.history.mean_ms);
        prop_assert!(least <= mean && mean <= most, "{least:?} <= {mean:?} <= {most:?}");
        prop_assert_eq!(entry.history.holds, holds.len() as u64);
    }

    /// A record is input: whatever history it claims, a release copes with it.
    #[test]
    fn any_history_can_be_continued(entry in entry(), history in history(), now in now()) {
        let entry = Entry { history, ..entry };
        let mut after = entry.clone();
        for claim in &entry.claims {
            let _left = after.leave(claim.ticket, &now);
        }
        prop_assert!(after.claims.is_empty());
        prop_assert!(after.history.holds >= entry.history.holds);
    }

    /// Native: as alive until the ttl. What cannot be seen is not dead, unless the beacon, which
    /// this kernel can vouch for, is out.
    #[test]
    fn native_never_takes_unknown_for_dead(
        entry in entry(),
        now in now(),
        beacon in prop_oneof![Just(Beacon::Lit), Just(Beacon::None)],
        command in liveness(),
    ) {
        let seen = Evidence { beacon, process: Liveness::Unknown, command };
        for claim in &entry.claims {
            let standing = judge(&Policy::NATIVE, claim, &seen, &now);
            let silent = claim.lease.is_silent(Some(BOOT), &now);
            prop_assert!(
                silent || matches!(standing, Standing::Held(_)),
                "{standing:?} before its ttl is over"
            );
        }
    }

    /// Nor a command that cannot be seen, of which the beacon says nothing.
    #[test]
    fn native_never_takes_an_unknown_command_for_dead(
        entry in entry(),
        now in now(),
        process in liveness(),
    ) {
        let seen = Evidence { beacon: Beacon::Out, process, command: Liveness::Unknown };
        let runs = |claim: &&Claim| claim.kind == Kind::Kernel && claim.token.is_some();
        for claim in entry.claims.iter().filter(runs) {
            let standing = judge(&Policy::NATIVE, claim, &seen, &now);
            let silent = claim.lease.is_silent(Some(BOOT), &now);
            prop_assert!(
                silent || matches!(standing, Standing::Held(_)),
                "{standing:?} before its ttl is over"
            );
        }
    }

    /// Resume: as alive, without end.
    #[test]
    fn resume_never_takes_unknown_for_dead(entry in entry(), now in now(), seen in evidence()) {
        let seen = Evidence { process: Liveness::Unknown, ..seen };
        for claim in entry.claims.iter().filter(|claim| claim.token.is_some()) {
            let standing = judge(&Policy::RESUME, claim, &seen, &now);
            prop_assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
        }
    }

    #[test]
    fn a_lit_beacon_is_life_where_beacons_are_asked(
        entry in entry(),
        now in now(),
        seen in evidence(),
    ) {
        let seen = Evidence { beacon: Beacon::Lit, ..seen };
        for claim in entry.claims.iter().filter(|claim| claim.kind == Kind::Kernel) {
            let standing = judge(&Policy::NATIVE, claim, &seen, &now);
            prop_assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
        }
    }

    /// Waiting is the same in every row: a waiter lives by its beacon and by nothing else. Holds
    /// are what the rows differ in.
    #[test]
    fn a_waiter_lives_by_its_beacon_in_every_row(
        policy in policy(),
        entry in entry(),
        now in now(),
        seen in evidence(),
    ) {
        for claim in entry.claims.iter().filter(|claim| claim.token.is_none()) {
            let standing = judge(&policy, claim, &seen, &now);
            let lives = matches!(standing, Standing::Held(_));
            match seen.beacon {
                Beacon::Lit => prop_assert!(lives, "{}: {standing:?}, lit", policy.name),
                Beacon::Out => prop_assert!(!lives, "{}: {standing:?}, out", policy.name),
                // A store without beacons: its process speaks, its age does not.
                Beacon::None => {
                    let alive = seen.process == Liveness::Alive;
                    prop_assert!(lives || !alive, "{}: {standing:?}, alive", policy.name);
                }
            }
        }
    }

    /// Ages decide a fleet hold, in both directions.
    #[test]
    fn fleet_asks_the_heartbeat_alone(entry in entry(), now in now(), seen in evidence()) {
        for claim in entry.claims.iter().filter(|claim| claim.token.is_some()) {
            let standing = judge(&Policy::FLEET, claim, &seen, &now);
            let silent = claim.lease.is_silent(Some(BOOT), &now);
            prop_assert_eq!(matches!(standing, Standing::Stale(_)), silent);
        }
    }

    #[test]
    fn a_sweep_removes_what_is_stale_and_nothing_else(
        policy in policy(),
        entry in entry(),
        now in now(),
        seen in proptest::collection::vec(evidence(), 6),
    ) {
        let seen = |claim: &Claim| {
            let place = entry.position(claim.ticket).unwrap_or(0);
            seen[place]
        };
        let mut after = entry.clone();
        let swept = after.sweep(&policy, &now, seen);
        let mut all: Vec<Claim> = after.claims.iter().chain(&swept).cloned().collect();
        all.sort_by_key(|claim| claim.ticket);
        prop_assert_eq!(&all, &entry.claims, "each claim is either kept or handed back");
        for claim in &swept {
            let standing = judge(&policy, claim, &seen(claim), &now);
            prop_assert!(matches!(standing, Standing::Stale(_)), "{standing:?} was swept");
        }
        prop_assert!(after.sweep(&policy, &now, seen).is_empty(), "once is enough");
    }

    /// A request to stop is for one ticket, and goes with it.
    #[test]
    fn a_request_to_stop_ends_with_its_target(entry in entry(), now in now(), place in 0_u8..6) {
        let ticket = ticket_at(&entry, place);
        let mut after = entry.clone();
        if after.ask_to_stop(ticket, "somebody".into(), &now) {
            for claim in &entry.claims {
                prop_assert_eq!(after.is_cancelled(claim.ticket), claim.ticket == ticket);
            }
            after.leave(ticket, &now);
            prop_assert!(!after.is_cancelled(ticket));
            prop_assert!(
                after.claims.iter().all(|claim| claim.cancel.is_none()),
                "nothing is left for a later claim"
            );
        }
    }
}

/// Cancelling the one that runs and replacing the one that waits are two requests at once.
#[test]
fn a_request_to_stop_survives_a_second_one_for_somebody_else() {
    let now = Now::default();
    let mut entry = Entry::default();
    let live = |_: &Claim| Evidence {
        beacon: Beacon::Lit,
        process: Liveness::Alive,
        command: Liveness::NotRecorded,
    };
    let mut tickets = Vec::new();
    for who in 0..2 {
        let request = request(who, Kind::Kernel, Force::No, Patience::Queue);
        match entry.enter(&Policy::NATIVE, request, &now, live, &mut Vec::new()) {
            Entering::Granted { ticket, .. } | Entering::Queued { ticket, .. } => {
                tickets.push(ticket);
            }
            Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {}
        }
    }
    for ticket in &tickets {
        assert!(entry.ask_to_stop(*ticket, "somebody".into(), &now));
    }
    for ticket in &tickets {
        assert!(entry.is_cancelled(*ticket), "{ticket} was asked to stop");
    }
}

/// The order of an attempt: it sleeps as soon as it is queued, looks whenever it wakes, and has left
/// the list before it tells its caller that it gave up.
#[test]
fn an_attempt_leaves_before_it_tells() {
    let behind = || Predecessor::Beacon { ticket: 1 };
    let queued = || {
        let (mut attempt, first) = Attempt::start();
        assert_eq!(first, Effect::Enter);
        let ticket = 3;
        let sleep = Effect::Sleep { behind: behind() };
        let entering = Entering::Queued {
            ticket,
            behind: behind(),
        };
        assert_eq!(attempt.on(Input::Entered(entering)), sleep, "queued");
        assert_eq!(attempt.on(Input::Woken), Effect::Look, "woken");
        attempt
    };
    let by = || "somebody".to_owned();
    let refusal = || Refusal {
        reason: Reason::StaleNeedsForce,
        standing: Standing::Stale(StaleReason::Aged),
        blocker: None,
    };
    let endings = [
        (Input::Expired, Outcome::TimedOut),
        (Input::Interrupted, Outcome::Interrupted),
        (
            Input::Advanced(Advance::Cancelled { by: by() }),
            Outcome::Superseded { by: by() },
        ),
        (
            Input::Advanced(Advance::Blocked(refusal())),
            Outcome::Refused(refusal()),
        ),
    ];
    for (input, outcome) in endings {
        let mut attempt = queued();
        assert_eq!(attempt.on(input.clone()), Effect::Leave, "{input:?}");
        assert_eq!(
            attempt.on(Input::Left),
            Effect::Finish(outcome),
            "{input:?}, once it has left"
        );
    }
    let mut attempt = queued();
    let still = attempt.on(Input::Advanced(Advance::Behind(behind())));
    assert_eq!(
        still,
        Effect::Sleep { behind: behind() },
        "still behind somebody"
    );
    assert_eq!(
        attempt.on(Input::Advanced(Advance::Granted { token: 5 })),
        Effect::Finish(Outcome::Granted {
            ticket: 3,
            token: 5
        })
    );
    assert_eq!(
        queued().on(Input::Advanced(Advance::Gone)),
        Effect::Enter,
        "the place is gone, so it queues again"
    );
}

/// Stamps are compared by the boot clock on one boot and by the wall clock across boots, so a
/// renewal after a restart must count from then on.
#[test]
fn a_renewal_after_a_restart_counts() {
    let mut entry = Entry::default();
    let begun = Now {
        wall_us: 1_000_000_000,
        boot_ms: 900_000,
        boot_id: BOOT.into(),
    };
    let request = request(0, Kind::Detached, Force::No, Patience::AtOnce);
    let unknown = |_: &Claim| Evidence {
        beacon: Beacon::None,
        process: Liveness::Unknown,
        command: Liveness::NotRecorded,
    };
    let entering = entry.enter(&Policy::FLEET, request, &begun, unknown, &mut Vec::new());
    let Entering::Granted { ticket, .. } = entering else {
        unreachable!("a free lock is granted");
    };
    let restarted = Now {
        wall_us: begun.wall_us + 600_000_000,
        boot_ms: 5_000,
        boot_id: "boot-b".into(),
    };
    assert!(matches!(
        entry.renew(ticket, &restarted),
        Renewal::Renewed { .. }
    ));
    let claim = entry.claim(ticket).expect("it was granted");
    assert_eq!(
        claim.lease.renewed,
        Stamp {
            wall_ms: 1_600_000,
            boot_ms: Stamp::OTHER_BOOT
        },
        "the other boot's clock is never read as this one's"
    );
    assert_eq!(
        claim.lease.silent_ms(Some(BOOT), &restarted),
        0,
        "renewed a moment ago"
    );
}
