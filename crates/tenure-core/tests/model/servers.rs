//! The contenders of the model on servers: no process keeps a guard, and each change is committed by
//! comparison, as a store on servers does it. The rules of what a change rests on are the core's own ([`RestsOn`]).
//!
//! In each of these scenarios every state is also asked whether what a change leaves out changes its
//! answer. The second half narrows the rules on purpose: each narrower one has to be found.
//!
//! Left to other tests: how a store compares, answers that are lost, and leases that run out.
//!
//! [`RestsOn`]: tenure_core::RestsOn

use crate::scenario::{Defect, Scenario, Script};
use crate::{
    A_GRACE, AN_HOUR, CLEANS, COMES_BACK, CONFIRMS, DETACHED, ENDLESS, ENDLESS_DETACHED,
    ENDLESS_NEWEST, ENDLESS_SHARED, FORCES, GIVES_UP, MORTAL, NEVER_COMES_BACK, NEWEST, RENEWS,
    RUN, SHARED, SINGLE, STOPS, STOPS_FOR_EVER, TWICE, TWO, breaks, holds,
};
use std::num::NonZeroU32;
use tenure_core::{Mode, Patience, Policy, Queueing};

/// A pool of two slots, held by its record.
const DETACHED_TWO: Script = Script {
    mode: Mode::Slots(NonZeroU32::MIN.saturating_add(1)),
    ..DETACHED
};
const DETACHED_TWICE: Script = Script {
    rounds: 2,
    ..DETACHED
};
/// Overrides, or goes away.
const OVERRIDES: Script = Script {
    patience: Patience::AtOnce,
    job: DETACHED.job,
    ..CONFIRMS
};
const DETACHED_SHARED: Script = Script {
    mode: Mode::Shared,
    ..DETACHED
};
const COMES_BACK_TO_SLOTS: Script = Script {
    mode: TWO.mode,
    ..COMES_BACK
};
const COMES_BACK_ALONE: Script = Script {
    queueing: Queueing::Single,
    ..COMES_BACK
};

/// Scripts that together come to every kind of change whose rule could be too narrow.
const PASSED_TWICE: &[Script] = &[DETACHED, STOPS, DETACHED_TWICE];
const OVERRIDDEN_AMONG_READERS: &[Script] =
    &[DETACHED, DETACHED_SHARED, DETACHED_SHARED, OVERRIDES];
const OVERRIDDEN_BESIDE: &[Script] = &[DETACHED, DETACHED_TWO, DETACHED_TWO, OVERRIDES];

fn compared(name: &'static str, scripts: &[Script]) -> Scenario {
    Scenario::native(name, scripts).compared().looks_ahead()
}

#[test]
fn runs_that_are_compared_take_their_turns() {
    holds(&compared("compared runs, two crashes", &[RUN; 3]).crashes(2));
    holds(&compared("compared, one twice, a crash", &[TWICE, RUN, RUN]).crashes(1));
    holds(&compared("compared, all may give up, two crashes", &[GIVES_UP; 3]).crashes(2));
    holds(&compared("compared, detached, a crash", &[MORTAL, RUN, DETACHED]).crashes(1));
}

#[test]
fn renewals_and_sweeps_that_are_compared_disturb_nobody() {
    let scripts = [RENEWS, RUN, CLEANS];
    holds(&compared("compared sweeps, two crashes", &scripts).crashes(2));
    let scripts = [MORTAL, RENEWS, CLEANS];
    holds(&compared("compared sweeps, detached, a crash", &scripts).crashes(1));
}

#[test]
fn those_beside_each_other_who_are_compared_are_never_too_many() {
    holds(&compared("compared slots, two crashes", &[TWO; 3]).crashes(2));
    let scripts = [TWO, SHARED, RUN];
    holds(&compared("compared slots and others, a crash", &scripts).crashes(1));
    let scripts = [ENDLESS_SHARED, GIVES_UP, SHARED];
    holds(&compared("compared readers", &scripts));
    holds(&compared("compared, a slot overridden", OVERRIDDEN_BESIDE));
}

#[test]
fn the_newest_that_is_compared_takes_the_place_of_who_waits() {
    holds(&compared("compared queue of one, two crashes", &[SINGLE; 3]).crashes(2));
    let scripts = [ENDLESS_NEWEST, NEWEST, NEWEST];
    holds(&compared("compared, the newest, a crash", &scripts).crashes(1));
}

#[test]
fn a_kept_place_that_is_compared_comes_first_when_its_claim_is_back() {
    let scripts = [RUN, COMES_BACK, RUN];
    holds(&compared("compared, comes back, a crash", &scripts).crashes(1));
    let scripts = [COMES_BACK, COMES_BACK, DETACHED];
    holds(&compared("compared, two come back", &scripts));
    let scripts = [RUN, NEVER_COMES_BACK, RUN];
    holds(&compared("compared, never comes back", &scripts));
    let scripts = [TWO, TWO, COMES_BACK_TO_SLOTS];
    holds(&compared("compared, comes back to slots", &scripts));
    let scripts = [RUN, RUN, COMES_BACK_TO_SLOTS];
    holds(&compared("compared, comes back, one alone holds", &scripts));
    let scripts = [RUN, COMES_BACK_ALONE, SINGLE];
    holds(&compared("compared queue of one, kept", &scripts));
}

#[test]
fn force_that_is_compared_is_aimed_at_holders() {
    let scripts = [ENDLESS, FORCES, RUN];
    holds(&compared("compared, asked to stop", &scripts));
    let scripts = [ENDLESS_DETACHED, CONFIRMS, RUN];
    holds(&compared("compared, overridden", &scripts));
    let scripts = [MORTAL, OVERRIDES, DETACHED];
    holds(&compared("compared, overridden, a crash", &scripts).crashes(1));
}

/// Rows by which a hold may end while its holder lives: by its age, and by force.
#[test]
fn other_rows_that_are_compared_hand_over() {
    let scripts = [RENEWS, TWICE];
    let scenario = compared("compared, session, an hour passes", &scripts);
    holds(&scenario.policy(Policy::SESSION).clock(AN_HOUR));
    let scripts = [ENDLESS, OVERRIDES, RUN];
    let scenario = compared("compared, resume, overridden", &scripts);
    holds(&scenario.policy(Policy::RESUME));
}

#[test]
fn a_stopped_waiter_that_is_compared_lets_others_pass() {
    let later = |name, scripts: &[Script]| compared(name, scripts).clock(A_GRACE);
    holds(&later("compared, is stopped", &[RUN, STOPS, RUN]));
    let scripts = [RUN, STOPS_FOR_EVER, RUN];
    holds(&later("compared, is stopped for ever", &scripts));
    holds(&later("compared, passed twice", PASSED_TWICE));
}

/// A rule that is narrower than the core's.
struct Narrower {
    defect: Defect,
    scripts: &'static [Script],
    clock: &'static [(u64, u64)],
    invariant: &'static str,
    /// Whether a second look at the answer finds the defect as well.
    changes_answers: bool,
}

const NARROWER: &[Narrower] = &[
    // A holder was granted behind the place of the one that looks.
    Narrower {
        defect: Defect::LooksRestOnNothing,
        scripts: &[RUN, COMES_BACK, RUN],
        clock: &[(0, 0)],
        invariant: "one holder at a time",
        changes_answers: true,
    },
    // The second one that passes it writes nothing to it.
    Narrower {
        defect: Defect::LooksOfThePassedRestOnBefore,
        scripts: PASSED_TWICE,
        clock: A_GRACE,
        invariant: "one holder at a time",
        changes_answers: true,
    },
    // A caller that overrides one of two holders does not count the claim that is about to be the other
    // holder.
    Narrower {
        defect: Defect::LooksBesideOthersRestOnBefore,
        scripts: OVERRIDDEN_AMONG_READERS,
        clock: &[(0, 0)],
        invariant: "one holder at a time",
        changes_answers: true,
    },
    // Two claims that look and enter at once choose the same number. A look ahead finds that too.
    Narrower {
        defect: Defect::LooksBesideOthersRestOnBefore,
        scripts: OVERRIDDEN_BESIDE,
        clock: &[(0, 0)],
        invariant: "no two holders share the number of a slot",
        changes_answers: false,
    },
    // Two callers that find the list empty.
    Narrower {
        defect: Defect::GrantsAtOnceRestOnNothing,
        scripts: &[RUN, RUN],
        clock: &[(0, 0)],
        invariant: "one holder at a time",
        changes_answers: true,
    },
    // Two callers that displace the same waiter.
    Narrower {
        defect: Defect::QueuesRestOnNothing,
        scripts: &[RUN, SINGLE, SINGLE],
        clock: &[(0, 0)],
        invariant: "one waits in a queue of one",
        changes_answers: false,
    },
    // A claim was granted behind the place while its caller was on the way back.
    Narrower {
        defect: Defect::ReturnsRestOnBefore,
        scripts: &[RUN, COMES_BACK, RUN],
        clock: &[(0, 0)],
        invariant: "one holder at a time",
        changes_answers: true,
    },
    // A claim came to the lock that was found empty.
    Narrower {
        defect: Defect::RemovesRestOnNothing,
        scripts: &[RUN, CLEANS],
        clock: &[(0, 0)],
        invariant: "a holder's claim stays in the list",
        changes_answers: false,
    },
    // A caller that overrides a hold stands behind waiters.
    Narrower {
        defect: Defect::OverlooksHoldersBehind,
        scripts: &[ENDLESS_DETACHED, CONFIRMS, RUN],
        clock: &[(0, 0)],
        invariant: "one holder at a time",
        changes_answers: false,
    },
];

#[test]
fn every_narrower_rule_is_found() {
    for narrower in NARROWER {
        let scenario = Scenario::native("with a narrower rule", narrower.scripts);
        let scenario = scenario.compared().clock(narrower.clock);
        let scenario = scenario.defect(narrower.defect);
        println!("{:?}", narrower.defect);
        breaks(&scenario, narrower.invariant);
        if narrower.changes_answers {
            let changes = "an answer depends on nothing but what it rests on";
            breaks(&scenario.looks_ahead(), changes);
        }
    }
}
