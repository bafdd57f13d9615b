//! What a change rests on, as a table. That these answers are enough, and narrower ones are not, is what the model
//! finds out (`model/comparing.rs`).
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use core::num::NonZeroU32;
use std::sync::Arc;
use tenure_core::{
    Claim, Entering, Event, Force, Holder, Kept, Kind, Lease, Mode, Patience, Predecessor, Process,
    Queueing, Request, RequestId, RestsOn, Stamp, Terms, TryGrant,
};

const CANCEL: Event = Event::CancelRequested { ticket: 3 };

fn holder() -> Holder {
    Holder {
        facts: Vec::new(),
        request_id: RequestId::new("one").expect("an id"),
        actor: String::new(),
        process: None,
        command: None,
        host: Arc::default(),
        why: String::new(),
    }
}

fn claim(ticket: u64) -> Claim {
    let lease = Lease {
        ttl_ms: 30_000,
        renewed: Stamp::default(),
        renewals: 0,
    };
    Claim::new(ticket, Kind::Kernel, holder(), Stamp::default(), lease)
}

fn plain() -> Request {
    Request {
        holder: holder(),
        kind: Kind::Kernel,
        ttl_ms: 30_000,
        force: Force::No,
        patience: Patience::Queue,
        terms: Terms::default(),
    }
}

fn with(terms: Terms) -> Request {
    Request { terms, ..plain() }
}

fn queued(ticket: u64) -> Entering {
    let behind = Predecessor::LivenessLock { ticket: 4 };
    Entering::Queued { ticket, behind }
}

fn slots(number: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(number).expect("some"))
}

#[test]
fn a_plain_request_that_only_queues_rests_on_nothing() {
    let modes = [Mode::Exclusive, Mode::Shared, slots(2)];
    let plain_ones = modes.map(|mode| {
        with(Terms {
            mode,
            grace_ms: 9,
            ..Terms::default()
        })
    });
    for request in [&plain(), &plain_ones[0], &plain_ones[1], &plain_ones[2]] {
        assert!(request.is_plain(), "{request:?}");
        let rests_on = |ticket, last, events: &[Event]| {
            RestsOn::entering(request, &queued(ticket), events, last)
        };
        assert_eq!(rests_on(5, None, &[]), Some(RestsOn::Nothing), "the first");
        assert_eq!(rests_on(5, Some(4), &[]), Some(RestsOn::Nothing), "behind");
        // The claim was in the list before: a place that was kept.
        assert_eq!(rests_on(5, Some(5), &[]), Some(RestsOn::All));
        assert_eq!(rests_on(5, Some(6), &[]), Some(RestsOn::All));
        // The claim did something to others.
        assert_eq!(rests_on(5, Some(4), &[CANCEL]), Some(RestsOn::All));
        assert_eq!(rests_on(5, None, &[CANCEL]), Some(RestsOn::All));
    }
}

#[test]
fn a_request_that_asks_for_more_than_a_place_rests_on_the_whole_list() {
    let owner = Process {
        pid: 7,
        started: None,
    };
    let kept = |kept| {
        with(Terms {
            kept: Some(kept),
            ..Terms::default()
        })
    };
    let queueing = |queueing| {
        with(Terms {
            queueing,
            ..Terms::default()
        })
    };
    let of_kind = |kind| Request { kind, ..plain() };
    let by_force = |force| Request { force, ..plain() };
    for request in [
        of_kind(Kind::Detached),
        of_kind(Kind::Foreign),
        of_kind(Kind::Sealed),
        by_force(Force::Asked),
        by_force(Force::Confirmed),
        queueing(Queueing::Single),
        queueing(Queueing::Max),
        kept(Kept::Ticket(5)),
        kept(Kept::Owner(owner)),
        kept(Kept::Agent),
        with(Terms {
            cancel_in_progress: true,
            ..Terms::default()
        }),
    ] {
        assert!(!request.is_plain(), "{request:?}");
        let rests_on = RestsOn::entering(&request, &queued(5), &[], Some(4));
        assert_eq!(rests_on, Some(RestsOn::All), "{request:?}");
    }
}

#[test]
fn a_grant_rests_on_the_whole_list_and_what_writes_nothing_on_nothing_at_all() {
    let rests_on = |entering: &Entering, events: &[Event]| {
        RestsOn::entering(&plain(), entering, events, Some(4))
    };
    let granted = Entering::Granted {
        ticket: 5,
        token: 6,
    };
    for events in [&[][..], &[CANCEL]] {
        assert_eq!(rests_on(&granted, events), Some(RestsOn::All));
    }
    let yours = Entering::Yours {
        ticket: 2,
        token: 3,
    };
    for answer in [yours, Entering::NotKept] {
        assert_eq!(rests_on(&answer, &[]), None, "{answer:?}");
        assert_eq!(rests_on(&answer, &[CANCEL]), Some(RestsOn::All));
    }
}

#[test]
fn a_grant_by_a_look_rests_on_what_can_stand_against_it() {
    let rests_on = |mode, was_passed| {
        let granted = TryGrant::Granted { token: 6 };
        RestsOn::looking(mode, was_passed, &granted, &[])
    };
    assert_eq!(rests_on(Mode::Exclusive, false), Some(RestsOn::Before));
    assert_eq!(rests_on(Mode::Exclusive, true), Some(RestsOn::All));
    for mode in [Mode::Shared, slots(1), slots(2)] {
        for was_passed in [false, true] {
            assert_eq!(rests_on(mode, was_passed), Some(RestsOn::All), "{mode:?}");
        }
    }
}

#[test]
fn a_look_without_a_grant_is_written_only_if_it_changed_the_list() {
    for grant in [
        TryGrant::Behind(Predecessor::Turn { ticket: 4 }),
        TryGrant::Yours {
            ticket: 2,
            token: 3,
        },
        TryGrant::Cancelled { by: Box::default() },
        TryGrant::Gone,
    ] {
        for mode in [Mode::Exclusive, Mode::Shared, slots(2)] {
            let rests_on =
                |was_passed, events: &[Event]| RestsOn::looking(mode, was_passed, &grant, events);
            assert_eq!(rests_on(false, &[]), None, "{grant:?}");
            for (was_passed, events) in [(true, &[][..]), (false, &[CANCEL]), (true, &[CANCEL])] {
                assert_eq!(rests_on(was_passed, events), Some(RestsOn::Before));
            }
        }
    }
}

#[test]
fn a_sweep_that_takes_the_lock_away_rests_on_no_claim_having_come() {
    let dead = [claim(1)];
    assert_eq!(RestsOn::sweeping(&[], false), None);
    assert_eq!(RestsOn::sweeping(&dead, false), Some(RestsOn::Nothing));
    assert_eq!(RestsOn::sweeping(&dead, true), Some(RestsOn::All));
    assert_eq!(RestsOn::sweeping(&[], true), Some(RestsOn::All));
}

#[test]
fn only_a_wait_for_the_last_claim_itself_is_directly_behind_it() {
    assert!(queued(5).queues_behind(Some(4)));
    assert!(!queued(5).queues_behind(Some(3)));
    assert!(!queued(5).queues_behind(None));
    // A claim for a slot sleeps on the turn of the last claim.
    let for_a_slot = Entering::Queued {
        ticket: 5,
        behind: Predecessor::Turn { ticket: 4 },
    };
    assert!(for_a_slot.queues_behind(Some(4)));
    assert!(!for_a_slot.queues_behind(Some(3)));
    for behind in [
        Predecessor::Record(Box::new(claim(4))),
        Predecessor::AnyOf(vec![claim(4)]),
    ] {
        let queued = Entering::Queued { ticket: 5, behind };
        assert!(!queued.queues_behind(Some(4)), "{queued:?}");
    }
    for answer in [
        Entering::Granted {
            ticket: 5,
            token: 6,
        },
        Entering::Yours {
            ticket: 4,
            token: 5,
        },
        Entering::NotKept,
    ] {
        assert!(!answer.queues_behind(Some(4)), "{answer:?}");
    }
}
