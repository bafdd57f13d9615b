//! The schedule of a hold: its table, the defects that four copies of it once had, and what has to be true
//! whatever the clock and the store do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use proptest::prelude::*;
use tenure_core::{Due, LeaseTerms, Moment, Schedule};

const SECOND: u64 = 1_000;

fn terms(ttl_ms: u64, lapse_ms: Option<u64>) -> LeaseTerms {
    LeaseTerms {
        ttl_ms,
        lapse_ms,
        grace_ms: 0,
        network: false,
    }
}

/// A lease of fifteen minutes, granted at 1000 s, that lapses by silence.
fn lease() -> Schedule {
    Schedule::new(terms(900 * SECOND, Some(900 * SECOND)), 1_000 * SECOND)
}

#[track_caller]
fn next_ms(schedule: &Schedule) -> u64 {
    schedule.next().expect("something comes").at_ms
}

/// Fails a renewal at this instant.
fn fail(schedule: &mut Schedule, now_ms: u64) -> tenure_core::Failed {
    schedule.begin(now_ms);
    schedule.failed(now_ms)
}

/// Renews at this instant.
fn renew(schedule: &mut Schedule, now_ms: u64) -> bool {
    schedule.begin(now_ms);
    schedule.renewed()
}

#[test]
fn the_interval_is_a_third_of_the_lease_and_no_more_than_30_seconds() {
    for (ttl, interval) in [(1, 333), (15, 5_000), (90, 30_000), (900, 30_000)] {
        let schedule = Schedule::new(terms(ttl * SECOND, None), 0);
        assert_eq!(next_ms(&schedule), interval, "ttl {ttl} s");
        assert_eq!(schedule.interval_ms(), interval, "ttl {ttl} s");
    }
    let short = Schedule::new(terms(900 * SECOND, Some(6 * SECOND)), 0);
    assert_eq!(next_ms(&short), 2_000, "it is left behind after 6 s");
    let tiny = Schedule::new(terms(1, None), 0);
    assert_eq!(next_ms(&tiny), 10, "no ttl keeps the machine busy");
}

#[test]
fn a_failure_is_tried_again_at_the_next_interval_and_the_third_is_an_event_once() {
    let mut schedule = lease();
    let events: Vec<_> = (1..=5)
        .map(|beat| {
            let now = (1_000 + 30 * beat) * SECOND;
            assert_eq!(schedule.due(now), Due::Renew, "beat {beat}");
            let failed = fail(&mut schedule, now);
            assert_eq!(schedule.due(now), Due::Nothing, "not at once");
            assert_eq!(u64::from(failed.consecutive), beat);
            assert_eq!(failed.runs_out_ms, None, "far from its end");
            failed.is_event
        })
        .collect();
    assert_eq!(events, [false, false, true, false, false]);
    renew(&mut schedule, 1_180 * SECOND);
    assert_eq!(fail(&mut schedule, 1_210 * SECOND).consecutive, 1, "anew");
}

#[test]
fn the_holder_is_told_half_an_interval_before_the_lease_runs_out() {
    let mut schedule = lease();
    for beat in 1..=29 {
        let failed = fail(&mut schedule, (1_000 + 30 * beat) * SECOND);
        assert_eq!(failed.runs_out_ms, None, "beat {beat}");
    }
    assert_eq!(schedule.due(1_884 * SECOND), Due::Nothing);
    assert_eq!(schedule.due(1_885 * SECOND), Due::Renew, "a last try");
    let failed = fail(&mut schedule, 1_885 * SECOND);
    assert_eq!(failed.runs_out_ms, Some(15 * SECOND), "what is left of it");
    let failed = fail(&mut schedule, 1_900 * SECOND);
    assert_eq!(failed.runs_out_ms, None, "told once");
    assert!(
        renew(&mut schedule, 1_930 * SECOND),
        "it can rely on it again"
    );
    assert_eq!(next_ms(&schedule), 1_960 * SECOND);
}

#[test]
fn however_short_a_lease_is_three_renewals_have_failed_before_its_holder_is_told() {
    for grace in [0, 1, 10, 600] {
        for ttl in (1..=120).chain([300, 900, 86_400]) {
            let lease = ttl * SECOND;
            let mut schedule = Schedule::new(
                LeaseTerms {
                    grace_ms: grace * SECOND,
                    ..terms(lease, Some(lease))
                },
                0,
            );
            let what = format!("a ttl of {ttl} s, a grace of {grace} s");
            let mut had_event = false;
            let (told, failed) = loop {
                let now = next_ms(&schedule);
                let failed = fail(&mut schedule, now);
                had_event |= failed.is_event;
                if failed.runs_out_ms.is_some() {
                    break (now, failed);
                }
            };
            assert!(failed.consecutive >= 3, "{what}: {failed:?}");
            assert!(had_event, "{what}");
            assert!(told >= lease / 4 * 3, "{what}: {told} is too soon");
            assert_eq!(failed.runs_out_ms, Some(lease - told), "{what}");
            assert!(told < lease, "{what}: {told} is too late");
        }
    }
}

/// A server that gives no answer is asked once: the reason is in the audit all the same.
#[test]
fn whoever_is_told_of_the_end_finds_the_reason_in_the_audit() {
    let mut schedule = over_a_network(6 * SECOND, 10 * SECOND);
    schedule.begin(2 * SECOND);
    let told = schedule.unanswered(3 * SECOND);
    assert_eq!((told.is_event, told.runs_out_ms), (true, Some(3 * SECOND)));
    assert_eq!(told.consecutive, 1, "which is said as well");
    let late = schedule.failed(5 * SECOND);
    assert_eq!(
        (late.is_event, late.runs_out_ms),
        (false, None),
        "once in a row"
    );
}

#[test]
fn a_lease_that_ran_out_in_its_sleep_is_tried_before_it_is_given_up() {
    let mut schedule = lease();
    let woken = 9_000 * SECOND;
    assert!(schedule.has_lapsed(woken));
    assert_eq!(schedule.due(woken), Due::Renew);
    renew(&mut schedule, woken);
    assert!(!schedule.has_lapsed(woken));
    assert_eq!(schedule.due(9_029 * SECOND), Due::Nothing);
}

#[test]
fn the_work_has_its_grace_before_others_may_take_the_lock() {
    for (ttl, grace, told) in [
        (900, 10, 885),
        (900, 60, 840),
        (900, 3_600, 675),
        (90, 10, 75),
        (60, 12, 48),
        (40, 10, 30),
        (12, 10, 9),
        (12, 0, 10),
    ] {
        let mut schedule = Schedule::new(
            LeaseTerms {
                grace_ms: grace * SECOND,
                ..terms(ttl * SECOND, Some(ttl * SECOND))
            },
            0,
        );
        is_told_at(&mut schedule, ttl * SECOND, told * SECOND);
    }
}

#[test]
fn over_a_network_the_work_has_its_grace_as_far_as_half_of_the_lease_allows() {
    for (ttl, grace, told) in [
        (30, 10, 20),
        (30, 12, 18),
        (30, 60, 15),
        (30, 1, 20),
        (1, 0, 0),
    ] {
        let mut schedule = over_a_network(ttl * SECOND, grace * SECOND);
        // Half of a second is kept of one.
        let told = if ttl == 1 { 500 } else { told * SECOND };
        is_told_at(&mut schedule, ttl * SECOND, told);
    }
}

/// Asks once, gets no answer, and is told then.
#[track_caller]
fn is_told_at(schedule: &mut Schedule, lapse_ms: u64, told_ms: u64) {
    schedule.begin(1);
    let end = Moment {
        at_ms: told_ms,
        early_ms: 0,
    };
    assert_eq!(schedule.next(), Some(end), "a lease of {lapse_ms} ms");
    assert_eq!(schedule.due(told_ms - 1), Due::Nothing, "not sooner");
    assert_eq!(schedule.due(told_ms), Due::Tell, "without an answer");
    let failed = schedule.unanswered(told_ms);
    assert_eq!(failed.runs_out_ms, Some(lapse_ms - told_ms), "what is left");
    assert_eq!(
        schedule.next(),
        None,
        "told once; only the answer is waited for"
    );
    assert!(schedule.renewed(), "which may still come");
}

/// A lease that lapses by silence, at the far end of a network.
fn over_a_network(lapse_ms: u64, grace_ms: u64) -> Schedule {
    let terms = LeaseTerms {
        grace_ms,
        network: true,
        ..terms(lapse_ms, Some(lapse_ms))
    };
    Schedule::new(terms, 0)
}

/// A guard does not know how long its holder's work needs, and takes a third of the lapse.
#[test]
fn a_guard_keeps_a_third_of_its_lease_over_a_network_and_a_quarter_of_a_record() {
    for lapse in [3_000, 6_000, 30_000, 90_000, 600_000] {
        let mut schedule = over_a_network(lapse, lapse / 3);
        is_told_at(&mut schedule, lapse, lapse * 2 / 3);
        let mut schedule = Schedule::new(
            LeaseTerms {
                grace_ms: lapse / 3,
                ..terms(lapse, Some(lapse))
            },
            0,
        );
        is_told_at(&mut schedule, lapse, lapse * 3 / 4);
    }
}

#[test]
fn over_a_network_a_failed_renewal_is_tried_again_soon() {
    let mut schedule = over_a_network(30 * SECOND, 0);
    assert_eq!(next_ms(&schedule), 10 * SECOND);
    fail(&mut schedule, 10 * SECOND);
    assert_eq!(next_ms(&schedule), 12 * SECOND);
    renew(&mut schedule, 12 * SECOND);
    assert_eq!(next_ms(&schedule), 22 * SECOND);
}

#[test]
fn a_hold_that_the_kernel_vouches_for_never_runs_out() {
    let mut schedule = Schedule::new(terms(30 * SECOND, None), 0);
    assert_eq!(fail(&mut schedule, 100_000 * SECOND).runs_out_ms, None);
    assert!(!schedule.has_lapsed(u64::MAX));
}

#[test]
fn a_renewal_is_under_way_until_its_answer_comes_or_is_given_up() {
    let mut schedule = lease();
    assert!(!schedule.is_asking());
    schedule.begin(1_030 * SECOND);
    schedule.unanswered(1_040 * SECOND);
    assert!(schedule.is_asking(), "it may still succeed");
    assert_eq!(schedule.due(1_041 * SECOND), Due::Nothing);
    schedule.forget_question();
    assert!(!schedule.is_asking());
    assert_eq!(
        schedule.due(1_041 * SECOND),
        Due::Renew,
        "no second renewal waits for an answer that cannot come"
    );
    schedule.begin(1_041 * SECOND);
    schedule.renewed();
    assert!(!schedule.is_asking());
}

#[test]
fn a_holder_relies_on_its_lock_until_it_is_told_or_the_lease_has_run_out() {
    let mut schedule = lease();
    assert!(schedule.is_reliable(1_000 * SECOND));
    assert!(schedule.is_reliable(1_900 * SECOND - 1));
    assert!(!schedule.is_reliable(1_900 * SECOND), "others may have it");
    fail(&mut schedule, 1_890 * SECOND);
    assert!(!schedule.has_lapsed(1_890 * SECOND));
    assert!(
        !schedule.is_reliable(1_890 * SECOND),
        "the holder was told, and has begun to end its work"
    );
    assert!(renew(&mut schedule, 1_891 * SECOND));
    assert!(schedule.is_reliable(1_900 * SECOND));
    schedule.lost();
    assert!(!schedule.is_reliable(1_900 * SECOND));
}

#[test]
fn what_is_gone_is_not_renewed() {
    let mut schedule = lease();
    schedule.lost();
    assert_eq!(schedule.due(100_000 * SECOND), Due::Nothing);
    assert_eq!(schedule.next(), None);
    assert!(schedule.has_lapsed(0));
}

/// Two locks, of which the second took long: what was renewed meanwhile counts.
#[test]
fn what_was_renewed_since_the_grant_counts() {
    let mut schedule = over_a_network(30 * SECOND, 10 * SECOND);
    for now in [10 * SECOND, 20 * SECOND, 30 * SECOND] {
        assert_eq!(schedule.due(now), Due::Renew);
        renew(&mut schedule, now);
    }
    assert_eq!(schedule.due(35 * SECOND), Due::Nothing);
}

/// The profile's limit counts, and not the ttl alone; and nothing is looked at again and again.
#[test]
fn a_long_ttl_under_a_short_limit_is_renewed_in_time() {
    let mut schedule = Schedule::new(terms(3_600 * SECOND, Some(600 * SECOND)), 0);
    let first = Moment {
        at_ms: 30 * SECOND,
        early_ms: 15 * SECOND,
    };
    assert_eq!(schedule.next(), Some(first));
    schedule.begin(30 * SECOND);
    assert_eq!(
        next_ms(&schedule),
        585 * SECOND,
        "an answer that does not come"
    );
    assert_eq!(schedule.due(584 * SECOND), Due::Nothing);
    assert_eq!(schedule.due(585 * SECOND), Due::Tell);
    let failed = schedule.unanswered(585 * SECOND);
    assert_eq!(failed.runs_out_ms, Some(15 * SECOND));
    assert_eq!(
        schedule.next(),
        None,
        "nothing to look at before the answer"
    );
}

/// What a store and a clock do to one hold.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The renewal that is due succeeds after so long.
    Succeeds(u64),
    /// The renewal fails after so long.
    Fails(u64),
    /// The holder sleeps on for so much longer than it meant to.
    Oversleeps(u64),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => (0_u64..40_000).prop_map(Fate::Succeeds),
        3 => (0_u64..40_000).prop_map(Fate::Fails),
        1 => (0_u64..200_000).prop_map(Fate::Oversleeps),
    ];
    proptest::collection::vec(fate, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    /// However late answers and the holder itself are: by the first look at or after the time to tell, the
    /// holder has renewed or was told; it is never told while half of the lease is still to come; and it is
    /// never told that time is left when none is.
    #[test]
    fn the_holder_knows_before_others_may_have_the_lock(
        ttl in 30_u64..100_000,
        lapse in 40_u64..100_000,
        grace in 0_u64..40_000,
        network: bool,
        fates in fates(),
    ) {
        let terms = LeaseTerms { ttl_ms: ttl, lapse_ms: Some(lapse), grace_ms: grace, network };
        let mut schedule = Schedule::new(terms, 0);
        // What an observer knows, without the schedule: the last renewal that was begun and succeeded.
        let (mut now, mut sign, mut is_told) = (0_u64, 0_u64, false);
        let judge = |failed: tenure_core::Failed, now: u64, sign: u64, is_told: &mut bool| {
            if let Some(left) = failed.runs_out_ms {
                prop_assert!(!*is_told, "told once");
                prop_assert!(now >= sign + lapse / 2, "not before half of the lease is over");
                prop_assert_eq!(left, (sign + lapse).saturating_sub(now));
                prop_assert!(!network || failed.is_event || failed.consecutive > 3, "an event, or after one");
                *is_told = true;
            }
            Ok(())
        };
        for fate in fates {
            let Some(moment) = schedule.next() else {
                prop_assert!(is_told, "only who was told has nothing to look at");
                break;
            };
            prop_assert!(moment.at_ms >= now || schedule.due(now) != Due::Nothing);
            prop_assert!(is_told || moment.at_ms < sign + lapse, "looks before others may have it");
            now = now.max(moment.at_ms);
            if let Fate::Oversleeps(more) = fate {
                now += more;
            }
            let (succeeds, took) = match fate {
                Fate::Succeeds(took) => (true, took),
                Fate::Fails(took) => (false, took),
                Fate::Oversleeps(_) => (false, 0),
            };
            prop_assert_eq!(schedule.due(now), Due::Renew, "one more is always tried");
            schedule.begin(now);
            let (began, answered) = (now, now + took);
            if let Some(tell) = schedule.next() && tell.at_ms < answered {
                now = now.max(tell.at_ms);
                prop_assert_eq!(schedule.due(now), Due::Tell);
                judge(schedule.unanswered(now), now, sign, &mut is_told)?;
                prop_assert!(is_told, "no answer in time is told");
            }
            now = answered;
            if succeeds {
                prop_assert_eq!(schedule.renewed(), is_told);
                (sign, is_told) = (began, false);
            } else {
                judge(schedule.failed(now), now, sign, &mut is_told)?;
            }
            prop_assert_eq!(schedule.has_lapsed(now), now >= sign + lapse);
        }
    }

    /// A store that never answers keeps no caller busy: but for the one time at which the holder is told, two
    /// tries are at least a fifth of an interval apart.
    #[test]
    fn looks_are_apart(ttl in 1_u64..100_000, lapse in 1_u64..100_000, network: bool) {
        let terms = LeaseTerms { ttl_ms: ttl, lapse_ms: Some(lapse), grace_ms: 0, network };
        let mut schedule = Schedule::new(terms, 0);
        let gap = tenure_core::interval_ms(ttl, Some(lapse)) / 5;
        let (mut now, mut early, mut is_told) = (0, 0, false);
        for _ in 0..50 {
            let at = next_ms(&schedule);
            prop_assert!(is_told || at >= now);
            early += u32::from(at < now + gap);
            now = at;
            is_told |= fail(&mut schedule, now).runs_out_ms.is_some();
        }
        prop_assert!(early <= 1, "{early} tries came early");
    }
}
