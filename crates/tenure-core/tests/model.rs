//! The file store's protocol with up to three contenders, explored in every order of its steps; and the
//! same contenders in a store that compares instead of keeping a guard (`servers`).
//!
//! A crash may strike before each step. What must hold is checked in every state, and in every
//! state from which nothing goes on. The second half of the file breaks the protocol on purpose
//! and asserts that the explorer notices: an explorer that cannot fail proves nothing.
//!
//! Left to other tests: what the kernel really does (the file store's own tests), time that runs
//! differently in two places, and more than three contenders.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "model/explore.rs"]
mod explore;
#[path = "model/scenario.rs"]
mod scenario;
#[path = "model/servers.rs"]
mod servers;
#[path = "model/world.rs"]
mod world;

use explore::explore;
use scenario::{Closes, Defect, Place, Scenario, Script, Stops};
use std::num::NonZeroU32;
use std::time::Instant;
use tenure_core::{Force, Mode, Patience, Policy, Queueing};

const RUN: Script = Script::RUN;
const DETACHED: Script = Script::DETACHED;
const TWICE: Script = Script { rounds: 2, ..RUN };
const GIVES_UP: Script = Script {
    gives_up: true,
    ..RUN
};
const NEVER_WAITS: Script = Script {
    patience: Patience::AtOnce,
    ..RUN
};
const RENEWS: Script = Script {
    renews: true,
    ..RUN
};
const FORCES: Script = Script {
    force: Force::Asked,
    ..RUN
};
const CONFIRMS: Script = Script {
    force: Force::Confirmed,
    ..RUN
};
/// The command goes on until it is asked to stop.
const ENDLESS: Script = Script {
    endless: true,
    ..RUN
};
/// The owner neither releases nor dies.
const ENDLESS_DETACHED: Script = Script {
    endless: true,
    ..DETACHED
};
/// The owner releases, or dies.
const MORTAL: Script = Script {
    mortal_owner: true,
    ..DETACHED
};
const CLOSES: Script = Script {
    closes: Closes::OnceNamed,
    ..RUN
};
const CLOSES_ANYTIME: Script = Script {
    closes: Closes::Anytime,
    ..RUN
};
const CLEANS: Script = Script {
    rounds: 2,
    ..Script::CLEAN
};

const SHARED: Script = Script {
    mode: Mode::Shared,
    ..RUN
};
const TWO: Script = Script {
    mode: Mode::Slots(NonZeroU32::MIN.saturating_add(1)),
    ..RUN
};
const THREE: Script = Script {
    mode: Mode::Slots(NonZeroU32::MIN.saturating_add(2)),
    ..RUN
};
const ENDLESS_SHARED: Script = Script {
    endless: true,
    ..SHARED
};
const ENDLESS_TWO: Script = Script {
    endless: true,
    ..TWO
};
const SINGLE: Script = Script {
    queueing: Queueing::Single,
    ..RUN
};
/// What `run --group --cancel-in-progress` does.
const NEWEST: Script = Script {
    cancels: true,
    ..SINGLE
};
const ENDLESS_NEWEST: Script = Script {
    endless: true,
    ..NEWEST
};
/// Comes back to its place after its patience was over.
const COMES_BACK: Script = Script {
    place: Place::Kept,
    ..GIVES_UP
};
const NEVER_COMES_BACK: Script = Script {
    place: Place::Abandoned,
    ..GIVES_UP
};

/// Is stopped while it waits, and goes on some time.
const STOPS: Script = Script {
    stops: Stops::ForAWhile,
    ..RUN
};
/// Is stopped while it waits, and never goes on.
const STOPS_FOR_EVER: Script = Script {
    stops: Stops::ForEver,
    ..RUN
};

/// Longer than a stopped waiter keeps its turn.
const A_GRACE: &[(u64, u64)] = &[(0, 0), (10_000_000, 10_000)];
/// Longer than every ttl and every limit but sprint's.
const AN_HOUR: &[(u64, u64)] = &[(0, 0), (0, 3_600_000)];
/// Longer than sprint's limit as well.
const A_WEEK: &[(u64, u64)] = &[(0, 0), (0, 604_800_000)];

fn holds(scenario: &Scenario) {
    let began = Instant::now();
    let report = explore(scenario);
    println!(
        "{:<52} {:>7} states {:>7} steps {:>5} ends {:>5} ms",
        scenario.name,
        report.states,
        report.steps,
        report.ends,
        began.elapsed().as_millis()
    );
    if let Some(violation) = report.violation {
        panic!("{}: {violation:?}", scenario.name);
    }
}

fn breaks(scenario: &Scenario, invariant: &str) {
    let report = explore(scenario);
    let violation = report.violation.as_ref();
    assert_eq!(
        violation.map(|violation| violation.invariant),
        Some(invariant),
        "{}: {violation:?}",
        scenario.name
    );
}

// The native protocol.

#[test]
fn runs_take_their_turns() {
    holds(&Scenario::native("three runs, two crashes", &[RUN; 3]).crashes(2));
    holds(&Scenario::native("three runs twice, two crashes", &[TWICE; 3]).crashes(2));
}

#[test]
fn a_waiter_may_give_up() {
    let twice = Script {
        rounds: 2,
        ..GIVES_UP
    };
    holds(&Scenario::native("all may give up, two crashes", &[GIVES_UP; 3]).crashes(2));
    holds(&Scenario::native(
        "two may give up, twice each",
        &[RUN, twice, twice],
    ));
}

#[test]
fn a_caller_may_never_wait() {
    let scripts = [TWICE, NEVER_WAITS, NEVER_WAITS];
    holds(&Scenario::native("two never wait, two crashes", &scripts).crashes(2));
}

#[test]
fn a_hold_may_be_detached() {
    holds(&Scenario::native("detached, two runs, two crashes", &[MORTAL, RUN, RUN]).crashes(2));
    holds(&Scenario::native("two detached, a run, two crashes", &[MORTAL, MORTAL, RUN]).crashes(2));
    let gives_up = Script {
        gives_up: true,
        ..DETACHED
    };
    let scripts = [gives_up, gives_up, GIVES_UP];
    holds(&Scenario::native("detached ones give up, a crash", &scripts).crashes(1));
}

#[test]
fn renewals_and_sweeps_disturb_nobody() {
    let scripts = [RENEWS, RENEWS, CLEANS];
    holds(&Scenario::native("renewals and sweeps, two crashes", &scripts).crashes(2));
    let scripts = [MORTAL, RENEWS, CLEANS];
    holds(&Scenario::native("sweeps beside a detached hold, two crashes", &scripts).crashes(2));
}

#[test]
fn a_clock_may_be_set_back() {
    let scripts = [TWICE, RUN, DETACHED];
    let scenario = Scenario::native("the clock goes back, a crash", &scripts);
    holds(&scenario.crashes(1).clock(&[(1_000, 0), (10, 1)]));
}

// Commands that outlive their supervisors.

#[test]
fn a_command_may_close_its_liveness_lock_once_it_is_named() {
    holds(
        &Scenario::native(
            "liveness locks closed once named, two crashes",
            &[CLOSES; 3],
        )
        .crashes(2),
    );
}

#[test]
fn a_command_that_is_named_before_it_begins_may_close_its_liveness_lock_at_once() {
    let scenario = Scenario::native(
        "named first, liveness locks closed, two crashes",
        &[CLOSES_ANYTIME; 3],
    );
    holds(&scenario.crashes(2).gated());
}

/// A limit, and the reason for the order of those two steps: between its start and its name in the
/// record, only the inherited liveness lock speaks for a command.
#[test]
fn a_command_that_closes_its_liveness_lock_before_it_is_named_is_not_covered() {
    let scenario = Scenario::native("liveness locks closed before named", &[CLOSES_ANYTIME, RUN]);
    breaks(&scenario.crashes(1), "one holder at a time");
}

// Force.

#[test]
fn a_run_may_be_asked_to_stop() {
    holds(&Scenario::native("asked to stop", &[ENDLESS, FORCES, RUN]));
    holds(&Scenario::native(
        "asked to stop, renewing",
        &[
            Script {
                renews: true,
                ..ENDLESS
            },
            FORCES,
            GIVES_UP,
        ],
    ));
    holds(&Scenario::native(
        "asked to stop twice",
        &[ENDLESS, FORCES, CONFIRMS],
    ));
}

#[test]
fn force_is_aimed_at_holders_even_when_the_holder_has_just_died() {
    holds(&Scenario::native("asked to stop, a crash", &[ENDLESS, FORCES, RUN]).crashes(1));
    holds(&Scenario::native("two ask to stop, a crash", &[ENDLESS, FORCES, FORCES]).crashes(1));
}

#[test]
fn a_detached_hold_may_be_overridden() {
    let scripts = [ENDLESS_DETACHED, CONFIRMS, RUN];
    holds(&Scenario::native("overridden", &scripts));
    let scripts = [DETACHED, CONFIRMS, GIVES_UP];
    holds(&Scenario::native("overridden, comes back late", &scripts));
}

#[test]
fn no_waiter_is_overridden_even_when_the_holder_has_just_died() {
    let scripts = [MORTAL, CONFIRMS, DETACHED];
    holds(&Scenario::native("overridden, a crash", &scripts).crashes(1));
    let confirms = Script {
        force: Force::Confirmed,
        ..DETACHED
    };
    let scripts = [confirms, confirms, RUN];
    holds(&Scenario::native("detached ones override, a crash", &scripts).crashes(1));
}

#[test]
fn an_override_goes_before_those_who_wait() {
    let never_waits = Script {
        patience: Patience::AtOnce,
        ..CONFIRMS
    };
    let scripts = [ENDLESS_DETACHED, never_waits, RUN];
    holds(&Scenario::native("overridden at once", &scripts));
}

// The other rows. Their waiters queue in the same list; only their holds follow other rules.

#[test]
fn resume_hands_over_after_crashes() {
    let scenario = Scenario::native("resume, runs, a crash", &[GIVES_UP, RUN, RUN]);
    holds(&scenario.policy(Policy::RESUME).gated().crashes(1));
    let scenario = Scenario::native("resume, detached, a crash", &[MORTAL, DETACHED, RUN]);
    holds(&scenario.policy(Policy::RESUME).gated().crashes(1));
}

/// As `runs_take_their_turns`, without a name before the start.
#[test]
fn resume_respects_a_command_that_was_not_named_yet() {
    let scenario = Scenario::native("resume, not named first, a crash", &[RUN; 3]);
    holds(&scenario.policy(Policy::RESUME).crashes(1));
}

#[test]
fn sprint_hands_over_after_crashes() {
    let scenario = Scenario::native("sprint, runs, a crash", &[GIVES_UP, RUN, RUN]);
    holds(&scenario.policy(Policy::SPRINT).gated().crashes(1));
    let scenario = Scenario::native("sprint, detached, a crash", &[MORTAL, DETACHED, RUN]);
    holds(&scenario.policy(Policy::SPRINT).gated().crashes(1));
}

#[test]
fn sprint_counts_the_age_of_holds_and_not_of_waiters() {
    let scenario = Scenario::native("sprint, a week passes", &[RUN, RUN, GIVES_UP]);
    holds(&scenario.policy(Policy::SPRINT).clock(A_WEEK));
}

#[test]
fn session_hands_over_after_crashes() {
    let scenario = Scenario::native("session, a crash, an hour passes", &[RUN; 3]);
    holds(&scenario.policy(Policy::SESSION).crashes(1).clock(AN_HOUR));
}

#[test]
fn session_takes_a_stalled_holder_over_when_its_time_is_up() {
    let scenario = Scenario::native("session, a stalled holder", &[ENDLESS, RUN, RUN]);
    holds(&scenario.policy(Policy::SESSION).clock(AN_HOUR));
}

#[test]
fn session_keeps_who_waits_longer_than_a_hold_may_be_silent() {
    let scenario = Scenario::native("session, a long queue", &[RENEWS, RUN, NEVER_WAITS]);
    holds(&scenario.policy(Policy::SESSION).clock(AN_HOUR));
}

#[test]
fn fleet_hands_over_after_crashes() {
    let scenario = Scenario::native("fleet, a crash, an hour passes", &[RUN; 3]);
    holds(&scenario.policy(Policy::FLEET).crashes(1).clock(AN_HOUR));
}

#[test]
fn fleet_remembers_the_force_of_who_waits() {
    let scenario = Scenario::native(
        "fleet, force waits for a stalled holder",
        &[ENDLESS, FORCES],
    );
    holds(&scenario.policy(Policy::FLEET).clock(AN_HOUR));
}

// Claims that hold beside each other. An endless holder shows that a waiter does not rely on its end
// without need: each waiter that could hold beside it has to come to its turn.

#[test]
fn readers_hold_together_and_a_writer_alone() {
    holds(
        &Scenario::native("readers and a writer, two crashes", &[SHARED, SHARED, RUN]).crashes(2),
    );
    let readers = Script {
        rounds: 2,
        ..SHARED
    };
    holds(
        &Scenario::native("readers twice, a writer, a crash", &[readers, SHARED, RUN]).crashes(1),
    );
    let gives_up = Script {
        gives_up: true,
        ..RUN
    };
    let scripts = [ENDLESS_SHARED, gives_up, SHARED];
    holds(&Scenario::native("an endless reader, a writer gives up, a crash", &scripts).crashes(1));
    let scripts = [ENDLESS_SHARED, SHARED, SHARED];
    holds(&Scenario::native("beside an endless reader, a crash", &scripts).crashes(1));
}

#[test]
fn slots_are_filled_in_order_and_never_overfilled() {
    holds(&Scenario::native("two slots, three runs, two crashes", &[TWO; 3]).crashes(2));
    holds(&Scenario::native("two slots, four runs", &[TWO; 4]));
    let scripts = [ENDLESS_TWO, TWO, TWO];
    holds(&Scenario::native("beside an endless slot, two crashes", &scripts).crashes(2));
    let gives_up = Script {
        gives_up: true,
        ..TWO
    };
    let scripts = [ENDLESS_TWO, ENDLESS_TWO, gives_up, TWO];
    holds(&Scenario::native("endless slots", &scripts));
    let detached = Script {
        mode: TWO.mode,
        ..MORTAL
    };
    let scripts = [detached, TWO, gives_up];
    holds(&Scenario::native("a detached slot, a crash", &scripts).crashes(1));
}

#[test]
fn modes_may_be_mixed() {
    holds(
        &Scenario::native("slots, shared, exclusive, two crashes", &[TWO, SHARED, RUN]).crashes(2),
    );
    holds(&Scenario::native("two kinds of slots, a crash", &[TWO, THREE, THREE]).crashes(1));
    let scripts = [ENDLESS_TWO, THREE, SHARED];
    holds(&Scenario::native("beside an endless slot, mixed, a crash", &scripts).crashes(1));
    let gives_up = Script {
        gives_up: true,
        ..RUN
    };
    let scripts = [ENDLESS_SHARED, gives_up, THREE];
    holds(&Scenario::native("beside an endless reader, mixed, a crash", &scripts).crashes(1));
}

// Queues of one.

#[test]
fn the_newest_takes_the_place_of_who_waits() {
    let scripts = [SINGLE, SINGLE, SINGLE];
    holds(&Scenario::native("one waits, two crashes", &scripts).crashes(2));
    let scripts = [ENDLESS, SINGLE, SINGLE, SINGLE];
    holds(&Scenario::native(
        "one waits behind an endless one",
        &scripts,
    ));
    let scripts = [ENDLESS, RUN, SINGLE, SINGLE];
    holds(&Scenario::native(
        "one waits in a queue of several",
        &scripts,
    ));
    let slots = Script {
        mode: TWO.mode,
        ..SINGLE
    };
    holds(&Scenario::native(
        "one waits for two slots",
        &[ENDLESS_TWO, slots, slots, TWO],
    ));
}

#[test]
fn the_newest_ends_who_holds() {
    let scripts = [ENDLESS_NEWEST, NEWEST, NEWEST];
    holds(&Scenario::native("the newest cancels, a crash", &scripts).crashes(1));
    let scripts = [ENDLESS, NEWEST, NEWEST, NEWEST];
    holds(&Scenario::native("three cancel an endless one", &scripts));
}

// Places that are kept.

#[test]
fn a_kept_place_blocks_nobody_and_comes_first_when_its_claim_is_back() {
    let scripts = [RUN, COMES_BACK, RUN];
    holds(&Scenario::native("comes back, two crashes", &scripts).crashes(2));
    let scripts = [ENDLESS, COMES_BACK, GIVES_UP];
    holds(&Scenario::native(
        "comes back behind an endless one",
        &scripts,
    ));
    let scripts = [COMES_BACK, COMES_BACK, RUN];
    holds(&Scenario::native("two come back, a crash", &scripts).crashes(1));
    let scripts = [RUN, NEVER_COMES_BACK, RUN];
    holds(&Scenario::native("never comes back, two crashes", &scripts).crashes(2));
}

#[test]
fn a_kept_place_lapses_with_its_grace() {
    let lapses: &[(u64, u64)] = &[(0, 0), (3_600_000_000, 0)];
    let scripts = [RUN, COMES_BACK, RUN];
    let scenario = Scenario::native("comes back early or late, a crash", &scripts);
    holds(&scenario.crashes(1).clock(lapses));
    let scripts = [RUN, NEVER_COMES_BACK, NEVER_COMES_BACK];
    holds(&Scenario::native("places that lapse", &scripts).clock(lapses));
}

#[test]
fn a_kept_place_among_slots_and_in_a_queue_of_one() {
    let slots = Script {
        mode: TWO.mode,
        ..COMES_BACK
    };
    holds(&Scenario::native("comes back to slots, a crash", &[TWO, TWO, slots]).crashes(1));
    let scripts = [ENDLESS_TWO, TWO, slots];
    holds(&Scenario::native("comes back beside an endless slot, a crash", &scripts).crashes(1));
    let scripts = [RUN, slots, RUN];
    holds(&Scenario::native("comes back to slots, one alone holds, a crash", &scripts).crashes(1));
    holds(&Scenario::native(
        "comes back to slots, filled meanwhile",
        &[TWO, TWO, slots, TWO],
    ));
    let shared = Script {
        mode: Mode::Shared,
        ..COMES_BACK
    };
    holds(&Scenario::native("comes back to readers, a crash", &[RUN, shared, SHARED]).crashes(1));
    let scripts = [RUN, shared, RUN];
    holds(&Scenario::native("a reader comes back, a writer holds, a crash", &scripts).crashes(1));
    holds(
        &Scenario::native(
            "a writer comes back, a crash",
            &[SHARED, COMES_BACK, SHARED],
        )
        .crashes(1),
    );
    let single = Script {
        queueing: Queueing::Single,
        ..COMES_BACK
    };
    holds(&Scenario::native("a queue of one, kept, a crash", &[RUN, single, SINGLE]).crashes(1));
    holds(&Scenario::native(
        "the newest, kept",
        &[ENDLESS_NEWEST, single, NEWEST],
    ));
}

// Waiters whose processes are stopped.

#[test]
fn a_stopped_waiter_lets_others_pass_and_keeps_its_place() {
    let later = |name, scripts: &[Script]| Scenario::native(name, scripts).clock(A_GRACE);
    let scripts = [RUN, STOPS, RUN];
    holds(&later("a waiter is stopped, a crash", &scripts).crashes(1));
    let scripts = [RUN, STOPS_FOR_EVER, RUN];
    holds(&later("a waiter is stopped for ever, a crash", &scripts).crashes(1));
    let scripts = [RUN, STOPS, STOPS];
    holds(&later("two waiters are stopped", &scripts));
    let scripts = [STOPS_FOR_EVER, STOPS_FOR_EVER, RUN];
    holds(&later("two waiters are stopped for ever", &scripts));
    let scripts = [RUN, STOPS, TWICE];
    holds(&later("a stopped waiter is passed twice", &scripts));
    let scripts = [MORTAL, STOPS, DETACHED];
    holds(&later("a stopped waiter among detached ones, a crash", &scripts).crashes(1));
}

/// A frozen waiter cannot be told from one that is slow. So any waiter that has its turn may be passed, also one that
/// runs. One that could not hold anyway has not had its turn: a writer behind a reader, and other readers wait for it.
#[test]
fn a_waiter_of_which_nobody_sees_whether_it_runs_may_be_passed() {
    let later = |name, scripts: &[Script]| Scenario::native(name, scripts).clock(A_GRACE).unseen();
    let slots = Script {
        mode: TWO.mode,
        ..STOPS
    };
    for (name, scripts) in [
        ("a slow waiter is passed", [RUN, RUN, RUN]),
        ("an unseen waiter is stopped", [RUN, STOPS, RUN]),
        (
            "an unseen waiter is stopped for ever",
            [RUN, STOPS_FOR_EVER, RUN],
        ),
        ("two unseen waiters are stopped", [RUN, STOPS, STOPS]),
        ("an unseen waiter is passed twice", [RUN, STOPS, TWICE]),
        (
            "an unseen waiter among detached ones",
            [MORTAL, STOPS, DETACHED],
        ),
        ("force passes an unseen waiter", [RUN, STOPS, FORCES]),
        ("an unseen one of two slots", [ENDLESS_TWO, slots, TWO]),
    ] {
        holds(&later(name, &scripts));
    }
    for (name, scripts) in [
        ("a slow waiter is passed, a crash", [RUN, RUN, RUN]),
        ("an unseen waiter is stopped, a crash", [RUN, STOPS, RUN]),
    ] {
        holds(&later(name, &scripts).crashes(1));
    }
}

#[test]
fn a_stopped_waiter_is_passed_at_once_by_force_and_by_the_newest() {
    let scripts = [RUN, STOPS_FOR_EVER, FORCES];
    holds(&Scenario::native("force passes a stopped waiter, a crash", &scripts).crashes(1));
    let scripts = [RUN, STOPS, FORCES];
    holds(&Scenario::native(
        "force passes, the waiter goes on",
        &scripts,
    ));
    let single = Script {
        queueing: Queueing::Single,
        ..STOPS
    };
    let scripts = [RUN, single, SINGLE];
    holds(&Scenario::native("the newest finds a stopped one, a crash", &scripts).crashes(1));
    let scripts = [RUN, single, NEWEST];
    let scenario = Scenario::native("the newest cancels, a stopped one waits", &scripts);
    holds(&scenario.clock(A_GRACE));
}

#[test]
fn a_stopped_waiter_lets_pass_those_who_hold_beside_each_other() {
    let slots = Script {
        mode: TWO.mode,
        ..STOPS
    };
    let for_ever = Script {
        mode: TWO.mode,
        ..STOPS_FOR_EVER
    };
    let later = |name, scripts: &[Script]| Scenario::native(name, scripts).clock(A_GRACE);
    holds(&later(
        "a stopped one of two slots",
        &[ENDLESS_TWO, slots, TWO],
    ));
    holds(&later(
        "stopped beside an endless slot, a crash",
        &[ENDLESS_TWO, for_ever, TWO],
    ));
    let scripts = [SHARED, STOPS, SHARED];
    holds(&later("a stopped writer between readers", &scripts));
    let scripts = [ENDLESS_SHARED, STOPS_FOR_EVER, SHARED];
    holds(&later(
        "a stopped writer behind an endless reader",
        &scripts,
    ));
    let scripts = [RUN, COMES_BACK, STOPS];
    holds(&later("a stopped one and a kept place", &scripts));
}

// The explorer can fail: each of these changes to the protocol is a defect, and it is found.

struct Seeded {
    defect: Defect,
    scripts: &'static [Script],
    crashes: u8,
    invariant: &'static str,
}

const SEEDED: &[Seeded] = &[
    // Between the guard and the liveness lock a newcomer sees a claim whose liveness lock is released.
    Seeded {
        defect: Defect::TakesLivenessAfterUnlock,
        scripts: &[RUN, RUN],
        crashes: 0,
        invariant: "one holder at a time",
    },
    // Putting the liveness lock released first is harmless by itself (see below), but not together with this.
    Seeded {
        defect: Defect::PutsOutBeforeLeavingAndWakesWithAStaleList,
        scripts: &[RUN; 3],
        crashes: 0,
        invariant: "no live waiter is thrown out of the queue",
    },
    // The one before may have given up while the one before that still holds.
    Seeded {
        defect: Defect::HoldsOnWaking,
        scripts: &[RUN, GIVES_UP, RUN],
        crashes: 0,
        invariant: "one holder at a time",
    },
    // The two halves of two transitions cross.
    Seeded {
        defect: Defect::LooksWithoutTheGuard,
        scripts: &[RUN; 3],
        crashes: 1,
        invariant: "a holder's claim stays in the list",
    },
    // What was written in between is lost, here a claim that had just entered.
    Seeded {
        defect: Defect::RenewsWithoutTheGuard,
        scripts: &[RENEWS, RUN],
        crashes: 0,
        invariant: "no live waiter is thrown out of the queue",
    },
    Seeded {
        defect: Defect::UnlocksBeforeCommit,
        scripts: &[RUN, RUN],
        crashes: 0,
        invariant: "tokens rise in the order of the grants",
    },
    // A dead claim looks alive for as long as the waiter that should sweep it keeps its byte.
    Seeded {
        defect: Defect::KeepsThePredecessorsByte,
        scripts: &[RUN, RUN],
        crashes: 1,
        invariant: "every waiter has something to wait for",
    },
    // A waiter that gives up takes the holder's claim out.
    Seeded {
        defect: Defect::LeavesWithoutATicket,
        scripts: &[RUN, GIVES_UP],
        crashes: 0,
        invariant: "a holder's claim stays in the list",
    },
    // An owner whose hold is over ends another owner's.
    Seeded {
        defect: Defect::ReleasesWithoutOwnership,
        scripts: &[MORTAL, RUN],
        crashes: 0,
        invariant: "a holder's claim stays in the list",
    },
    // The change came between the look and the sleep.
    Seeded {
        defect: Defect::NoticesOnlyNewChanges,
        scripts: &[DETACHED, RUN],
        crashes: 0,
        invariant: "every waiter has something to wait for",
    },
    Seeded {
        defect: Defect::GivesUpWithItsLivenessLockHeld,
        scripts: &[RUN, GIVES_UP, RUN],
        crashes: 0,
        invariant: "every waiter has something to wait for",
    },
    Seeded {
        defect: Defect::LivenessLockIsNotInherited,
        scripts: &[RUN, RUN],
        crashes: 1,
        invariant: "one holder at a time",
    },
    Seeded {
        defect: Defect::NeverAsksTheCommand,
        scripts: &[CLOSES, RUN],
        crashes: 1,
        invariant: "one holder at a time",
    },
    Seeded {
        defect: Defect::ReleasesBeforeTheWorkEnds,
        scripts: &[RUN, RUN],
        crashes: 0,
        invariant: "a holder's claim stays in the list",
    },
    Seeded {
        defect: Defect::WritesInPlace,
        scripts: &[RUN, RUN],
        crashes: 1,
        invariant: "a holder's claim stays in the list",
    },
    Seeded {
        defect: Defect::ReportsWaitersAsDead,
        scripts: &[RUN; 3],
        crashes: 0,
        invariant: "no live waiter is thrown out of the queue",
    },
];

const SEEDED_IN_TERMS: &[Seeded] = &[
    // A waiter that is woken looks first, sees the one before still waiting, and is sent to sleep on a byte
    // that no process has.
    Seeded {
        defect: Defect::GivesItsTurnBeforeLooking,
        scripts: &[TWO; 4],
        crashes: 0,
        invariant: "no waiter is sent to sleep behind what has ended",
    },
    // The second one could hold beside the first, and sleeps until that ends.
    Seeded {
        defect: Defect::KeepsItsTurn,
        scripts: &[TWO, TWO, ENDLESS_TWO, TWO],
        crashes: 0,
        invariant: "every waiter has something to wait for",
    },
    Seeded {
        defect: Defect::CountsWhoWasDisplaced,
        scripts: &[RUN, SINGLE, SINGLE],
        crashes: 0,
        invariant: "no waiter is sent to sleep that could hold",
    },
    Seeded {
        defect: Defect::CountsWhoIsAway,
        scripts: &[RUN, NEVER_COMES_BACK, RUN],
        crashes: 0,
        invariant: "no waiter is sent to sleep behind what has ended",
    },
    // A claim was granted behind the place while its caller was away.
    Seeded {
        defect: Defect::OverlooksHoldersBehind,
        scripts: &[RUN, COMES_BACK, RUN],
        crashes: 0,
        invariant: "one holder at a time",
    },
    Seeded {
        defect: Defect::OverlooksHoldersBehind,
        scripts: &[
            TWO,
            TWO,
            Script {
                mode: TWO.mode,
                ..COMES_BACK
            },
            TWO,
        ],
        crashes: 0,
        invariant: "no more holders than each of them tolerates",
    },
    // Of two holders the first one leaves.
    Seeded {
        defect: Defect::NumbersByCount,
        scripts: &[TWO; 3],
        crashes: 0,
        invariant: "no two holders share the number of a slot",
    },
    Seeded {
        defect: Defect::NeverDisplaces,
        scripts: &[RUN, SINGLE, SINGLE],
        crashes: 0,
        invariant: "one waits in a queue of one",
    },
    // The waiter sleeps on, behind a claim that does not end, and its place is not its own any more.
    Seeded {
        defect: Defect::SleepsThroughRequestsToStop,
        scripts: &[ENDLESS, SINGLE, SINGLE],
        crashes: 0,
        invariant: "a waiter that was asked to stop leaves",
    },
    // A waiter that sleeps behind the place is not told that its caller has gone.
    Seeded {
        defect: Defect::ReservesWithItsLivenessLockHeld,
        scripts: &[RUN, NEVER_COMES_BACK, RUN],
        crashes: 0,
        invariant: "every waiter has something to wait for",
    },
];

const SEEDED_WHERE_WAITERS_STOP: &[Seeded] = &[
    Seeded {
        defect: Defect::WaitsForTheStopped,
        scripts: &[RUN, STOPS_FOR_EVER, RUN],
        crashes: 0,
        invariant: "every waiter has something to wait for",
    },
    Seeded {
        defect: Defect::TakesTheSlowForStopped,
        scripts: &[RUN, RUN, RUN],
        crashes: 0,
        invariant: "no waiter is passed that is not stopped",
    },
    Seeded {
        defect: Defect::ForgetsWhoGoesOn,
        scripts: &[RUN, STOPS, TWICE],
        crashes: 0,
        invariant: "a waiter that looks counts again",
    },
    // The one that goes on believes that its turn is still its own.
    Seeded {
        defect: Defect::OverlooksHoldersBehind,
        scripts: &[RUN, STOPS, RUN],
        crashes: 0,
        invariant: "one holder at a time",
    },
    // The waiter wakes up because the grace is over, and takes that for its turn.
    Seeded {
        defect: Defect::HoldsOnWaking,
        scripts: &[RUN, STOPS, RUN],
        crashes: 0,
        invariant: "the first to come is the first to hold",
    },
];

#[test]
fn every_defect_that_is_seeded_where_waiters_stop_is_found() {
    for seeded in SEEDED_WHERE_WAITERS_STOP {
        let scenario = Scenario::native("with a defect", seeded.scripts).clock(A_GRACE);
        println!("{:?}", seeded.defect);
        breaks(&scenario.defect(seeded.defect), seeded.invariant);
    }
}

#[test]
fn every_defect_that_is_seeded_in_what_terms_add_is_found() {
    for seeded in SEEDED_IN_TERMS {
        let scenario = Scenario::native("with a defect", seeded.scripts);
        let scenario = scenario.crashes(seeded.crashes).defect(seeded.defect);
        println!("{:?}", seeded.defect);
        breaks(&scenario, seeded.invariant);
    }
}

#[test]
fn every_seeded_defect_is_found() {
    for seeded in SEEDED {
        let scenario = Scenario::native("with a defect", seeded.scripts);
        let scenario = scenario.crashes(seeded.crashes).defect(seeded.defect);
        println!("{:?}", seeded.defect);
        breaks(&scenario, seeded.invariant);
        // Shortest histories are equally long, so leaving renamed states out hides nothing here.
        let named = Scenario {
            named: true,
            ..scenario.clone()
        };
        let length = |scenario| explore(scenario).violation.map(|v| v.history.len());
        assert_eq!(
            length(&scenario),
            length(&named),
            "{:?}: the same with and without renaming",
            seeded.defect
        );
    }
}

/// A waiter that wakes up as the turn is let go has to wait for the guard, and so finds the grant.
#[test]
fn a_turn_may_be_let_go_before_the_write_as_long_as_the_guard_is_kept() {
    let scenario = Scenario::native("turns let go early, a crash", &[ENDLESS_TWO, TWO, TWO]);
    holds(&scenario.crashes(1).defect(Defect::GivesItsTurnBeforeCommit));
}

/// Two orders that look dangerous and are not, as long as the guard is kept throughout: no process judges a
/// claim without the guard, and when a release releases its liveness lock the work is over. (The second
/// would still be wrong in the audit: the next in line would report a takeover.)
#[test]
fn some_orders_are_only_a_matter_of_taste() {
    let scripts = [RUN, GIVES_UP, RUN];
    for defect in [
        Defect::TakesLivenessAfterCommit,
        Defect::PutsOutBeforeLeaving,
    ] {
        let scenario = Scenario::native("another order, a crash", &scripts);
        holds(&scenario.crashes(1).defect(defect));
    }
}
