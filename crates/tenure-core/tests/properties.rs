//! Properties of the list of claims under arbitrary sequences of operations, arbitrary clocks and
//! arbitrary evidence, most of which no real system would produce.
//!
//! What a sequence of steps means for the contenders is `model.rs`'s business.
#![allow(missing_docs, clippy::expect_used)]

use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use tenure_core::{
    Attempt, Cancel, Claim, Death, Effect, Entering, Entry, Event, Evidence, Force, History,
    Holder, Host, Input, Kept, Kind, Lease, Left, Liveness, LivenessLock, Mode, Now, Outcome,
    Ownership, PENDING_MAX, Patience, Policy, Predecessor, Process, Queueing, RETRY_CEILING_MS,
    RETRY_FLOOR_MS, Reason, Refusal, ReleaseByOther, Released, Renewal, Request, RequestId,
    Reservation, StaleReason, Stamp, Standing, Takeover, Terms, TryGrant, WaitingFor, judge,
    retry_after_ms,
};

/// The largest number that every JSON reader keeps exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;
const BOOT: &str = "boot-a";

fn config() -> ProptestConfig {
    ProptestConfig {
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
        terms: Terms,
        /// The place in the list that it wants back.
        kept: Option<u8>,
    },
    /// The operations on a claim name it by its place in the list, or name one that is not there.
    TryGrant(u8),
    Leave(u8),
    Renew(u8),
    Ask(u8),
    Name(u8),
    Release(u8),
    Reserve(u8, u64),
    Note(u8),
    Cancel,
    Sweep,
    Raise(u64),
}

/// An operation, when it happens, and what is seen of each claim at that moment.
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

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        3 => (1_u32..4).prop_map(|slots| NonZeroU32::new(slots).map_or(Mode::Shared, Mode::Slots)),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let queueing = prop_oneof![
        2 => Just(Queueing::Fifo),
        1 => Just(Queueing::Single),
        1 => Just(Queueing::Max),
    ];
    (mode(), queueing, any::<bool>()).prop_map(|(mode, queueing, cancel_in_progress)| Terms {
        mode,
        queueing,
        cancel_in_progress,
        ..Terms::default()
    })
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
    let liveness_lock = prop_oneof![
        2 => Just(LivenessLock::Held),
        1 => Just(LivenessLock::Released),
        1 => Just(LivenessLock::Lapsed),
        1 => Just(LivenessLock::None),
    ];
    (liveness_lock, liveness(), liveness()).prop_map(|(liveness_lock, process, command)| Evidence {
        liveness_lock,
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
        6 => (0_u8..4, kind(), force(), patience(), terms(), proptest::option::weighted(0.3, place()))
            .prop_map(|(who, kind, force, patience, terms, kept)| {
                Operation::Enter { who, kind, force, patience, terms, kept }
            }),
        4 => place().prop_map(Operation::TryGrant),
        2 => place().prop_map(Operation::Leave),
        1 => place().prop_map(Operation::Renew),
        1 => place().prop_map(Operation::Ask),
        1 => place().prop_map(Operation::Name),
        1 => (0_u8..4).prop_map(Operation::Release),
        2 => (place(), prop_oneof![Just(u64::MAX), 0_u64..1_000]).prop_map(|(place, grace)| {
            Operation::Reserve(place, grace)
        }),
        1 => place().prop_map(Operation::Note),
        1 => Just(Operation::Cancel),
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
            host: Arc::new(Host {
                boot_id: Some(BOOT.into()),
                ..Host::default()
            }),
            why: String::new(),
        },
        kind,
        ttl_ms: 30_000,
        force,
        patience,
        terms: Terms::default(),
    }
}

/// What an operation drew.
#[derive(Debug, Default)]
struct Drawn {
    ticket: Option<u64>,
    token: Option<u64>,
}

/// The ticket in this place, or one that no claim has.
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
            mut terms,
            kept,
        } => {
            terms.kept = kept.map(|place| Kept::Ticket(ticket_at(entry, place)));
            // A place is found for its own mode only; mostly, that is what is asked for.
            let place = kept.and_then(|place| entry.claims.get(usize::from(place)));
            if let Some(place) = place.filter(|_| who > 0) {
                terms.mode = place.mode;
            }
            let request = Request {
                terms,
                ..request(who, kind, force, patience)
            };
            let last = entry.last;
            // A caller that comes back to its place has its old ticket.
            let is_new = |ticket: u64| (ticket > last).then_some(ticket);
            match entry.enter(policy, request, now, seen, &mut events) {
                Entering::Granted { ticket, token } => {
                    drawn.ticket = is_new(ticket);
                    drawn.token = Some(token);
                }
                Entering::Queued { ticket, .. } => drawn.ticket = is_new(ticket),
                Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {}
            }
        }
        Operation::TryGrant(place) => {
            let ticket = ticket_at(entry, place);
            let had = entry.claim(ticket).and_then(|claim| claim.token);
            match entry.try_grant(policy, ticket, now, &mut seen, &mut events) {
                TryGrant::Granted { token } if had.is_none() => drawn.token = Some(token),
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
            let _there = entry.ask_to_stop(ticket_at(entry, place), "somebody", now);
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
        Operation::Reserve(place, grace_ms) => {
            let owner = Process {
                pid: 8,
                started: None,
            };
            let _kept = entry.reserve(ticket_at(entry, place), Some(owner), grace_ms, now);
        }
        Operation::Note(place) => {
            let claim = entry.claims.get(usize::from(place));
            let token = claim.and_then(|claim| claim.token).unwrap_or(u64::MAX);
            let _noted = entry.note_waiting(token, Some(&waiting_for()));
        }
        Operation::Cancel => {
            let _asked = entry.cancel(policy, "somebody", now, seen);
        }
        Operation::Sweep => {
            let _swept = entry.sweep(policy, now, seen);
        }
        Operation::Raise(floor) => entry.raise(floor),
    }
    drawn
}

fn waiting_for() -> WaitingFor {
    WaitingFor {
        place: "/elsewhere".into(),
        name: "other".into(),
        ticket: 1,
    }
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
            entry.claims.push({
                let mut claim = Claim::new(
                    entry.last - 1,
                    kind,
                    holder,
                    now.stamp(),
                    Lease {
                        renewals: 0,
                        ttl_ms,
                        renewed: now.stamp(),
                    },
                );
                claim.token = granted.then_some(entry.last);
                claim.since = granted.then(|| now.stamp());
                claim
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

/// A list of claims of any terms, some of whose callers are away, and some of which were asked to stop.
/// There may be too many holders; no user of these lists looks at that.
fn entry_of_terms() -> impl Strategy<Value = Entry> {
    let claim = (
        terms(),
        any::<bool>(),
        proptest::option::weighted(0.3, 0_u64..2),
    );
    let claims = proptest::collection::vec(claim, 6);
    (entry(), claims).prop_map(|(mut entry, claims)| {
        for (claim, (terms, asked, away)) in entry.claims.iter_mut().zip(claims) {
            (claim.mode, claim.queueing) = (terms.mode, terms.queueing);
            let at = claim.entered;
            claim.cancel = asked.then(|| Cancel {
                by: "somebody".into(),
                at,
                ..Cancel::default()
            });
            claim.reservation = away
                .filter(|_| claim.token.is_none() && !asked)
                .map(|grace| Reservation {
                    since: at,
                    grace_ms: grace * u64::MAX,
                });
        }
        entry
    })
}

/// Whether a list could have come about: its holders tolerate each other.
fn tolerate_each_other(entry: &Entry) -> bool {
    let least = entry.granted().map(|claim| claim.mode.capacity()).min();
    let numbers = |claim: &Claim| match claim.mode {
        Mode::Slots(slots) => Some(slots),
        Mode::Exclusive | Mode::Shared => None,
    };
    let mut slots: Vec<_> = entry.granted().filter_map(numbers).collect();
    slots.dedup();
    slots.len() <= 1 && least.is_none_or(|least| entry.granted().count() <= least)
}

/// Sees each claim the same way however often it is asked about: by its place in the list as it was.
fn seen_by_place<'a>(
    before: &'a Entry,
    seen: &'a [Evidence],
) -> impl FnMut(&Claim) -> Evidence + 'a {
    move |claim| seen[before.position(claim.ticket).unwrap_or(0) % seen.len()]
}

proptest! {
    #![proptest_config(config())]

    /// Holders tolerate each other whatever evidence there is, and whichever claims come back, are
    /// overridden or displaced.
    #[test]
    fn those_who_hold_tolerate_each_other(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            apply(&mut entry, &policy, step);
            prop_assert!(tolerate_each_other(&entry), "after {:?}: {entry:#?}", step.operation);
        }
    }

    /// Whatever evidence there is, and whichever claims come back, are overridden or displaced: a hold of slots
    /// has a number below its slots, no other holder has it, and it keeps it until it ends. No other claim has
    /// one.
    #[test]
    fn a_hold_of_slots_has_a_number_of_its_own(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            let before = entry.clone();
            apply(&mut entry, &policy, step);
            let mut taken = Vec::new();
            for claim in &entry.claims {
                let number = match (claim.mode, claim.token) {
                    (Mode::Slots(slots), Some(_)) => {
                        let number = claim.slot.expect("a hold of slots has a number");
                        prop_assert!(number < slots.get(), "{number} of {slots}");
                        prop_assert!(!taken.contains(&number), "{number} twice: {entry:#?}");
                        taken.push(number);
                        Some(number)
                    }
                    _ => None,
                };
                prop_assert_eq!(claim.slot, number);
                if let Some(earlier) = before.claim(claim.ticket).filter(|c| c.token.is_some()) {
                    prop_assert_eq!(earlier.slot, claim.slot, "a hold has one number for life");
                }
            }
        }
    }

    /// Holders that a version without numbers granted keep none of the numbers, and the rest are still given
    /// once each.
    #[test]
    fn holders_without_a_number_keep_none(bare in proptest::collection::vec(any::<bool>(), 4)) {
        let slots = Mode::Slots(NonZeroU32::MIN.saturating_add(4));
        let mut scene = Story::new();
        let terms = Terms { mode: slots, ..Terms::default() };
        for (who, bare) in (0_u8..).zip(&bare) {
            let ticket = scene.granted(who, Kind::Kernel, terms);
            if *bare {
                scene.entry.claim_mut(ticket).expect("a hold").slot = None;
            }
        }
        let ticket = scene.granted(9, Kind::Kernel, terms);
        let number = scene.entry.claim(ticket).and_then(|claim| claim.slot);
        let with_it = scene.entry.granted().filter(|claim| claim.slot == number).count();
        prop_assert_eq!(with_it, 1, "{:#?}", scene.entry);
        prop_assert!(number.is_some_and(|number| number < 5));
    }

    /// To keep a place is to stand aside: no other claim changes, every claim that could hold still can,
    /// and a hold, or a claim that was asked to stop, is no place.
    #[test]
    fn a_kept_place_is_in_nobodys_way(
        entry in entry_of_terms(),
        seen in proptest::collection::vec(evidence(), 6),
        now in now(),
        place in 0_u8..6,
    ) {
        let ticket = ticket_at(&entry, place);
        let mut reserved = entry.clone();
        let kept = reserved.reserve(ticket, None, 1_000, &now);
        let may = entry.claim(ticket).is_some_and(|c| c.token.is_none() && c.cancel.is_none());
        prop_assert_eq!(kept, may);
        for claim in &entry.claims {
            let after = reserved.claim(claim.ticket);
            if claim.ticket == ticket && kept {
                prop_assert!(after.is_some_and(|after| !after.is_in_line()));
                continue;
            }
            prop_assert_eq!(after, Some(claim));
            let grants = |entry: &Entry| {
                let mut trial = entry.clone();
                let seen = seen_by_place(entry, &seen);
                let answer =
                    trial.try_grant(&Policy::NATIVE, claim.ticket, &now, seen, &mut Vec::new());
                matches!(answer, TryGrant::Granted { .. })
            };
            prop_assert!(!grants(&entry) || grants(&reserved), "{} lost its chance", claim.ticket);
        }
        prop_assert_eq!((entry.last, entry.history), (reserved.last, reserved.history));
    }

    /// A caller that enters takes nothing from a live claim but the place of a waiter that yields. It asks
    /// only holders to stop, and only if it says so.
    #[test]
    fn who_enters_touches_nobody_but_those_who_yield(
        before in entry_of_terms(),
        terms in terms(),
        kind in kind(),
        now in now(),
        kept in proptest::option::of(0_u8..6),
    ) {
        let mut after = before.clone();
        let lives = |_: &Claim| Evidence {
            liveness_lock: LivenessLock::Held,
            process: Liveness::Alive,
            command: Liveness::NotRecorded,
        };
        let own = kept.map(|place| ticket_at(&before, place));
        let terms = Terms { kept: own.map(Kept::Ticket), ..terms };
        let request = Request { terms, ..request(9, kind, Force::No, Patience::Queue) };
        let mut events = Vec::new();
        let entering = after.enter(&Policy::NATIVE, request, &now, lives, &mut events);
        let returned = own.filter(|_| entering != Entering::NotKept);
        for claim in &before.claims {
            if Some(claim.ticket) == returned {
                continue;
            }
            let older = returned.is_none_or(|own| claim.ticket < own);
            let yields = claim.token.is_none() && claim.queueing.yields() && older
                && terms.queueing == Queueing::Single;
            let lapsed = claim.reservation.is_some_and(|away| away.is_over(Some(BOOT), &now));
            let told = events.iter().any(|event| match event {
                Event::Displaced { claim: displaced } => displaced.ticket == claim.ticket,
                _ => false,
            });
            match after.claim(claim.ticket) {
                None => prop_assert!(
                    lapsed || (yields && claim.reservation.is_some() && told),
                    "{} is gone", claim.ticket
                ),
                Some(same) if same == claim => prop_assert!(!told, "told for nothing"),
                Some(changed) => {
                    let mut asked = claim.clone();
                    asked.cancel.clone_from(&changed.cancel);
                    prop_assert_eq!(&asked, changed, "it was asked to stop, and nothing else");
                    prop_assert!(claim.cancel.is_none(), "and not twice");
                    let holds = claim.token.is_some();
                    prop_assert!(told && yields || holds && terms.cancel_in_progress);
                }
            }
        }
        if terms.queueing == Queueing::Single && matches!(entering, Entering::Queued { .. }) {
            let ticket = after.claims.iter().find(|c| c.holder.request_id == request_id(9));
            let ticket = ticket.map_or(u64::MAX, |claim| claim.ticket);
            let waits = |c: &&Claim| c.token.is_none() && c.is_in_line() && c.ticket < ticket;
            let others = after.claims.iter().filter(waits).filter(|c| c.queueing.yields());
            prop_assert_eq!(others.count(), 0, "it waits alone among those who yield");
        }
    }

    /// Asking to stop reaches all live holders, and changes nothing else.
    #[test]
    fn asking_to_stop_changes_holders_alone(
        policy in policy(),
        entry in entry_of_terms(),
        seen in proptest::collection::vec(evidence(), 6),
        now in now(),
    ) {
        let mut after = entry.clone();
        let asked = after.cancel(&policy, "somebody", &now, seen_by_place(&entry, &seen));
        let mut look = seen_by_place(&entry, &seen);
        prop_assert_eq!(entry.claims.len(), after.claims.len());
        for (claim, changed) in entry.claims.iter().zip(&after.claims) {
            let standing = judge(&policy, claim, &look(claim), &now);
            let alive = claim.token.is_some() && matches!(standing, Standing::Held(_));
            prop_assert_eq!(asked.contains(changed), alive, "whom it names");
            let mut same = changed.clone();
            same.cancel.clone_from(&claim.cancel);
            prop_assert_eq!(&same, claim, "nothing but a request to stop");
            let expected = claim.cancel.is_some() || alive;
            prop_assert_eq!(changed.cancel.is_some(), expected, "{}", claim.ticket);
        }
    }

    #[test]
    fn a_note_of_waiting_touches_one_hold(entry in entry_of_terms(), token in 0_u64..14) {
        let mut after = entry.clone();
        let noted = after.note_waiting(token, Some(&waiting_for()));
        for (claim, changed) in entry.claims.iter().zip(&after.claims) {
            let meant = claim.token == Some(token);
            prop_assert_eq!(changed.waiting_for.is_some(), meant);
            prop_assert!(!meant || noted);
        }
        prop_assert_eq!(noted, entry.granted().any(|claim| claim.token == Some(token)));
    }

    /// As below, among several holders: force that cannot end all of them ends none for nothing.
    #[test]
    fn who_never_waits_is_never_queued_among_several(
        policy in policy(),
        entry in entry_of_terms(),
        seen in proptest::collection::vec(evidence(), 6),
        force in force(),
        terms in terms(),
        now in now(),
    ) {
        prop_assume!(tolerate_each_other(&entry));
        let mut after = entry.clone();
        let mut events = Vec::new();
        let request = Request { terms, ..request(9, Kind::Kernel, force, Patience::AtOnce) };
        let seen = seen_by_place(&entry, &seen);
        let entering = after.enter(&policy, request, &now, seen, &mut events);
        prop_assert!(!matches!(entering, Entering::Queued { .. }), "queued: {entering:?}");
        let broke = events.iter().any(|event| matches!(
            event,
            Event::Stolen { why: Takeover::Active, .. }
        ));
        let refused = matches!(entering, Entering::Refused(_));
        prop_assert!(!(broke && refused), "a live hold was broken for nothing");
    }

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

    /// A grant reckons with all waiters before it and all holders: an exclusive one leaves none of them
    /// there, the others no more than each of them tolerates.
    #[test]
    fn a_grant_leaves_nobody_in_front_who_would_mind(policy in policy(), steps in steps()) {
        let mut entry = Entry::default();
        for step in &steps {
            let drawn = apply(&mut entry, &policy, step);
            let granted = drawn.token.and_then(|t| entry.granted().find(|c| c.token == Some(t)));
            if let Some(granted) = granted {
                // A caller that overrides a hold gets it, whichever claims wait.
                let overrides = matches!(
                    step.operation,
                    Operation::Enter { force: Force::Asked | Force::Confirmed, .. }
                );
                let counts = |claim: &&Claim| {
                    let is_before = claim.ticket < granted.ticket && claim.is_in_line();
                    claim.token.is_some() || (is_before && !overrides)
                };
                let reckoned: Vec<&Claim> = entry.claims.iter().filter(counts).collect();
                let least = reckoned.iter().map(|claim| claim.mode.capacity()).min();
                prop_assert!(Some(reckoned.len()) <= least, "{:?}: {entry:#?}", step.operation);
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

    /// Claims whose liveness lock is held, in the row that believes liveness locks: only their owners, and only
    /// by asking for it, may end them. Detached holds have no liveness lock, so they are left out.
    #[test]
    fn nobody_ends_a_live_run(steps in steps()) {
        let mut entry = Entry::default();
        let lives = Evidence {
            liveness_lock: LivenessLock::Held,
            process: Liveness::Alive,
            command: Liveness::NotRecorded,
        };
        for step in &steps {
            let mut step = Step { seen: vec![lives], ..step.clone() };
            if let Operation::Enter { kind, .. } = &mut step.operation {
                *kind = Kind::Kernel;
            }
            let before = entry.clone();
            apply(&mut entry, &Policy::NATIVE, &step);
            // The caller of a kept place is not there.
            for claim in before.claims.iter().filter(|claim| claim.reservation.is_none()) {
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

    /// A caller that never waits gets the lock or a refusal, and a refusal breaks no live hold.
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
        prop_assert!(!after.ask_to_stop(absent, "somebody", &now));
        let command = Process { pid: 9, started: None };
        prop_assert!(!after.name_command(absent, command));
        let grant = after.try_grant(&policy, absent, &now, |_| seen, &mut Vec::new());
        prop_assert_eq!(grant, TryGrant::Gone);
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
        entry.ask_to_stop(ticket_at(&entry, asked), "somebody", &now);
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

    /// An owner's release finds the owner's hold, whichever other holds stand beside it.
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
                liveness_lock: LivenessLock::Released,
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

    /// Native: as alive until the ttl. What cannot be seen is not dead, unless the liveness lock, which
    /// this kernel can vouch for, is out.
    #[test]
    fn native_never_takes_unknown_for_dead(
        entry in entry(),
        now in now(),
        liveness_lock in prop_oneof![Just(LivenessLock::Held), Just(LivenessLock::None)],
        command in liveness(),
    ) {
        let seen = Evidence { liveness_lock, process: Liveness::Unknown, command };
        for claim in &entry.claims {
            let standing = judge(&Policy::NATIVE, claim, &seen, &now);
            let silent = claim.lease.is_silent(Some(BOOT), &now);
            prop_assert!(
                silent || matches!(standing, Standing::Held(_)),
                "{standing:?} before its ttl is over"
            );
        }
    }

    /// Nor a command that cannot be seen, of which the liveness lock says nothing.
    #[test]
    fn native_never_takes_an_unknown_command_for_dead(
        entry in entry(),
        now in now(),
        process in liveness(),
    ) {
        let seen = Evidence { liveness_lock: LivenessLock::Released, process, command: Liveness::Unknown };
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

    /// Resume: as alive, without end, unless its own kernel shows that its supervisor has let go.
    #[test]
    fn resume_never_takes_unknown_for_dead(entry in entry(), now in now(), seen in evidence()) {
        let seen = Evidence { process: Liveness::Unknown, ..seen };
        for claim in entry.claims.iter().filter(|claim| claim.token.is_some()) {
            let standing = judge(&Policy::RESUME, claim, &seen, &now);
            let let_go = claim.kind == Kind::Kernel && seen.liveness_lock == LivenessLock::Released;
            let may_live = matches!(seen.command, Liveness::Alive)
                || (seen.command == Liveness::Unknown && !claim.lease.is_silent(Some(BOOT), &now));
            prop_assert!(
                matches!(standing, Standing::Held(_)) || (let_go && !may_live),
                "{standing:?}"
            );
        }
    }

    #[test]
    fn a_held_liveness_lock_is_life_where_the_profile_asks_for_it(
        entry in entry(),
        now in now(),
        seen in evidence(),
    ) {
        let seen = Evidence { liveness_lock: LivenessLock::Held, ..seen };
        for claim in entry.claims.iter().filter(|claim| claim.kind == Kind::Kernel) {
            let standing = judge(&Policy::NATIVE, claim, &seen, &now);
            prop_assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
        }
    }

    /// Waiting is the same in every row: a waiter lives by its liveness lock and by nothing else. Holds
    /// are what the rows differ in.
    #[test]
    fn a_waiter_lives_by_its_liveness_lock_in_every_row(
        policy in policy(),
        entry in entry(),
        now in now(),
        seen in evidence(),
    ) {
        for claim in entry.claims.iter().filter(|claim| claim.token.is_none()) {
            let standing = judge(&policy, claim, &seen, &now);
            let lives = matches!(standing, Standing::Held(_));
            match seen.liveness_lock {
                LivenessLock::Held => prop_assert!(lives, "{}: {standing:?}, held", policy.name),
                LivenessLock::Released | LivenessLock::Lapsed => prop_assert!(!lives, "{}: {standing:?}, released", policy.name),
                // A store without liveness locks: its process speaks, its age does not.
                LivenessLock::None => {
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
        if after.ask_to_stop(ticket, "somebody", &now) {
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

/// Some claims, told in one line each: which caller enters how, and what evidence there is of each.
struct Story {
    entry: Entry,
    now: Now,
    events: Vec<Event>,
}

impl Story {
    fn new() -> Self {
        Self {
            entry: Entry::default(),
            now: Now::default(),
            events: Vec::new(),
        }
    }

    /// Detached holds live by their owner, the others by their liveness lock.
    fn enter(
        &mut self,
        who: u8,
        kind: Kind,
        force: Force,
        patience: Patience,
        terms: Terms,
    ) -> Entering {
        let alive = |claim: &Claim| Evidence {
            liveness_lock: match (claim.kind, claim.token) {
                (Kind::Detached, Some(_)) => LivenessLock::None,
                _ => LivenessLock::Held,
            },
            process: Liveness::Alive,
            command: Liveness::NotRecorded,
        };
        let request = Request {
            terms,
            ..request(who, kind, force, patience)
        };
        self.events.clear();
        let entry = &mut self.entry;
        entry.enter(&Policy::NATIVE, request, &self.now, alive, &mut self.events)
    }

    fn granted(&mut self, who: u8, kind: Kind, terms: Terms) -> u64 {
        match self.enter(who, kind, Force::No, Patience::Queue, terms) {
            Entering::Granted { ticket, .. } => ticket,
            other => unreachable!("expected a grant, saw {other:?}"),
        }
    }

    fn queued(&mut self, who: u8, terms: Terms) -> u64 {
        match self.enter(who, Kind::Kernel, Force::No, Patience::Queue, terms) {
            Entering::Queued { ticket, .. } => ticket,
            other => unreachable!("expected a place in the queue, saw {other:?}"),
        }
    }

    fn away(&mut self, who: u8, terms: Terms) -> u64 {
        let ticket = self.queued(who, terms);
        assert!(
            self.entry.reserve(ticket, None, 1_000, &self.now),
            "it waits"
        );
        ticket
    }

    fn stolen(&self) -> usize {
        let stolen = |event: &&Event| matches!(event, Event::Stolen { .. });
        self.events.iter().filter(stolen).count()
    }
}

const SHARED: Terms = Terms {
    mode: Mode::Shared,
    queueing: Queueing::Fifo,
    cancel_in_progress: false,
    grace_ms: 0,
    kept: None,
    watched: None,
};
const PLAIN: Terms = Terms {
    mode: Mode::Exclusive,
    ..SHARED
};
const SINGLE: Terms = Terms {
    queueing: Queueing::Single,
    ..PLAIN
};
const MAX: Terms = Terms {
    queueing: Queueing::Max,
    ..PLAIN
};

#[test]
fn a_kept_place_behind_the_holder_does_not_hinder_an_override() {
    let mut story = Story::new();
    story.granted(0, Kind::Detached, PLAIN);
    story.away(1, PLAIN);
    let forced = story.enter(2, Kind::Kernel, Force::Confirmed, Patience::AtOnce, PLAIN);
    assert!(matches!(forced, Entering::Granted { .. }), "{forced:?}");
    assert_eq!(story.stolen(), 1, "{:?}", story.events);
}

#[test]
fn force_ends_none_of_several_holds_for_a_caller_who_would_not_wait_for_the_rest() {
    for first in [Kind::Detached, Kind::Kernel] {
        let second = match first {
            Kind::Detached => Kind::Kernel,
            _ => Kind::Detached,
        };
        let mut story = Story::new();
        let holders = [
            story.granted(0, first, SHARED),
            story.granted(1, second, SHARED),
        ];
        let forced = story.enter(2, Kind::Kernel, Force::Confirmed, Patience::AtOnce, PLAIN);
        assert!(matches!(forced, Entering::Refused(_)), "{forced:?}");
        assert!(
            holders
                .iter()
                .all(|ticket| story.entry.claim(*ticket).is_some()),
            "{first:?} first: {:?}",
            story.events
        );
    }
}

#[test]
fn force_ends_what_it_may_and_asks_the_rest_whichever_of_them_came_first() {
    for first in [Kind::Detached, Kind::Kernel] {
        let second = match first {
            Kind::Detached => Kind::Kernel,
            _ => Kind::Detached,
        };
        let mut story = Story::new();
        story.granted(0, first, SHARED);
        story.granted(1, second, SHARED);
        let forced = story.enter(2, Kind::Kernel, Force::Confirmed, Patience::Queue, PLAIN);
        let left: Vec<(Kind, bool)> = (story.entry.granted())
            .map(|claim| (claim.kind, claim.cancel.is_some()))
            .collect();
        assert_eq!(left, [(Kind::Kernel, true)], "{first:?} first");
        let run = story.entry.granted().next().map_or(0, |claim| claim.ticket);
        assert!(
            matches!(forced, Entering::Queued { behind: Predecessor::LivenessLock { ticket }, .. } if ticket == run),
            "{first:?} first: {forced:?}"
        );
    }
}

#[test]
fn the_newest_takes_a_kept_place_also_when_it_need_not_wait() {
    let mut story = Story::new();
    let holder = story.granted(0, Kind::Kernel, PLAIN);
    let away = story.away(1, SINGLE);
    let patient = story.away(2, PLAIN);
    story.entry.leave(holder, &story.now.clone());
    story.granted(3, Kind::Kernel, SINGLE);
    assert_eq!(story.entry.claim(away), None, "a newer one came");
    assert!(
        story.entry.claim(patient).is_some(),
        "it gives way to no other"
    );
    assert!(
        story
            .events
            .iter()
            .any(|event| { matches!(event, Event::Displaced { claim } if claim.ticket == away) }),
        "{:?}",
        story.events
    );
}

#[test]
fn who_comes_back_displaces_nobody_that_came_later() {
    let mut story = Story::new();
    story.granted(0, Kind::Kernel, PLAIN);
    let away = story.away(1, SINGLE);
    let later = story.queued(2, MAX);
    let kept = Some(Kept::Ticket(away));
    assert_eq!(story.queued(3, Terms { kept, ..SINGLE }), away);
    assert!(!story.entry.is_cancelled(later), "it is the newer one");
    let newest = story.queued(4, SINGLE);
    let asked = [away, later, newest].map(|ticket| story.entry.is_cancelled(ticket));
    assert_eq!(asked, [true, true, false], "until a newer one comes");
}

#[test]
fn a_queue_that_counts_refuses_one_more_and_asks_nobody_to_stop_for_it() {
    let mut story = Story::new();
    let holder = story.granted(0, Kind::Kernel, PLAIN);
    for _ in 0..PENDING_MAX {
        story.queued(1, MAX);
    }
    for force in [Force::No, Force::Asked] {
        let before = story.entry.clone();
        let entering = story.enter(2, Kind::Kernel, force, Patience::Queue, MAX);
        assert!(
            matches!(&entering, Entering::Refused(refusal) if refusal.reason == Reason::QueueFull),
            "{entering:?}"
        );
        assert_eq!(story.entry, before, "{force:?}: nothing changed");
    }
    assert!(!story.entry.is_cancelled(holder));
    story.queued(3, PLAIN);
}

/// Cancelling the one that runs and replacing the one that waits are two requests at once.
#[test]
fn a_request_to_stop_survives_a_second_one_for_somebody_else() {
    let now = Now::default();
    let mut entry = Entry::default();
    let live = |_: &Claim| Evidence {
        liveness_lock: LivenessLock::Held,
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
        assert!(entry.ask_to_stop(*ticket, "somebody", &now));
    }
    for ticket in &tickets {
        assert!(entry.is_cancelled(*ticket), "{ticket} was asked to stop");
    }
}

/// The order of an attempt: it sleeps as soon as it is queued, looks whenever it wakes, and has left
/// the list before it tells its caller that it gave up.
#[test]
fn an_attempt_leaves_before_it_tells() {
    let behind = || Predecessor::LivenessLock { ticket: 1 };
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
    let by = || Box::new(Cancel::default());
    let refusal = || {
        let standing = Standing::Stale(StaleReason::Aged);
        Refusal::new(Reason::StaleNeedsForce, standing, None)
    };
    let endings = [
        (Input::Expired, Outcome::TimedOut),
        (Input::Interrupted, Outcome::Interrupted),
        (
            Input::Tried(TryGrant::Cancelled { by: by() }),
            Outcome::Superseded { by: by() },
        ),
        (
            Input::Tried(TryGrant::Blocked(refusal())),
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
    let still = attempt.on(Input::Tried(TryGrant::Behind(behind())));
    assert_eq!(
        still,
        Effect::Sleep { behind: behind() },
        "still behind a claim"
    );
    assert_eq!(
        attempt.on(Input::Tried(TryGrant::Granted { token: 5 })),
        Effect::Finish(Outcome::Granted {
            ticket: 3,
            token: 5
        })
    );
    assert_eq!(
        queued().on(Input::Tried(TryGrant::Gone)),
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
        liveness_lock: LivenessLock::None,
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
