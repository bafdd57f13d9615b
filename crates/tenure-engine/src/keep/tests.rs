use super::*;

const LEASE: LeaseTerms = LeaseTerms {
    ttl_ms: 60_000,
    lapse_ms: Some(60_000),
    grace_ms: 0,
    network: true,
};

/// A hold that no silence ends.
const PLAIN: LeaseTerms = LeaseTerms {
    lapse_ms: None,
    network: false,
    ..LEASE
};

const STANDS: Result<Renewal, &str> = Ok(Renewal::Renewed {
    token: 1,
    cancel_requested: false,
});

const ASKED: Result<Renewal, &str> = Ok(Renewal::Renewed {
    token: 1,
    cancel_requested: true,
});

const GONE: Result<Renewal, &str> = Ok(Renewal::Lost);

fn gone() -> News {
    News {
        lost: Some(Loss::Gone(None)),
        ..News::default()
    }
}

fn stop() -> News {
    News {
        stop_requested: true,
        ..News::default()
    }
}

#[test]
fn what_a_holder_learns_from_an_answer_table() {
    let unsure = News {
        is_unsure: true,
        ..News::default()
    };
    for (ask, answer, learned) in [
        (Ask::Look, STANDS, News::default()),
        (Ask::Renew, STANDS, News::default()),
        (Ask::Look, ASKED, stop()),
        (Ask::Renew, ASKED, stop()),
        (Ask::Look, GONE, gone()),
        (Ask::Renew, GONE, gone()),
        (Ask::Look, Err("no answer"), unsure),
    ] {
        let mut life = Life::new(PLAIN, 0);
        life.begin(ask, 10);
        assert_eq!(
            life.answered(ask, &answer, 20),
            learned,
            "{ask:?} {answer:?}"
        );
        let is_gone = answer == GONE;
        assert_eq!(life.is_lost(), is_gone, "{ask:?} {answer:?}");
        assert_eq!(life.next_ms().is_none(), is_gone, "{ask:?} {answer:?}");
    }
}

#[test]
fn loss_by_silence_is_told_once_and_before_others_may_have_the_lock() {
    let mut life = Life::new(LEASE, 0);
    let mut told = Vec::new();
    let mut now = 0;
    while let Some(next) = life.next_ms().filter(|next| *next < 120_000) {
        now = next.max(now);
        let news = match life.due(now) {
            Step::Ask(ask) => {
                life.begin(ask, now);
                now += 7;
                life.answered(ask, &Err("no answer"), now)
            }
            Step::Unanswered => life.unanswered(now),
            Step::Nothing => panic!("nothing is due at {now}"),
        };
        told.extend(news.lost.map(|lost| (now, lost)));
    }
    let [(at, Loss::Silence { left_ms })] = told.as_slice() else {
        panic!("told once: {told:?}");
    };
    assert_eq!(at + left_ms, 60_000);
    assert!(*left_ms >= 10_000, "the work has time to end: {left_ms}");
    // The loss stays until a renewal succeeds.
    assert!(life.is_lost());
    life.begin(Ask::Renew, now);
    assert!(life.answered(Ask::Renew, &STANDS, now).is_back);
    assert!(!life.is_lost());
}

#[test]
fn a_question_without_an_answer_is_a_loss_by_silence_too() {
    let mut life = Life::new(LEASE, 0);
    let first = life.next_ms().expect("a renewal");
    life.begin(Ask::Renew, first);
    let end = life.next_ms().expect("the end of the wait for an answer");
    assert_eq!(life.due(end - 1), Step::Nothing, "it waits for the answer");
    assert_eq!(life.due(end), Step::Unanswered);
    let lost = life.unanswered(end).lost;
    assert_eq!(
        lost,
        Some(Loss::Silence {
            left_ms: 60_000 - end
        })
    );
    // The answer comes after all.
    assert!(life.answered(Ask::Renew, &STANDS, end + 1).is_back);
}

#[test]
fn a_late_answer_counts_as_a_look() {
    let mut life = Life::new(LEASE, 0);
    life.begin(Ask::Renew, 10);
    assert_eq!(life.answered(Ask::Renew, &STANDS, 20), News::default());
    let next = life.next_ms();
    for late in [Err("no answer"), STANDS] {
        assert_eq!(life.answered(Ask::Renew, &late, 30), News::default());
        assert_eq!(life.next_ms(), next, "neither a failure nor a sign of life");
    }
    assert_eq!(life.answered(Ask::Renew, &ASKED, 30), stop());
    assert_eq!(life.answered(Ask::Renew, &GONE, 30), gone());
    assert_eq!(
        life.answered(Ask::Look, &GONE, 40),
        News::default(),
        "told once"
    );
}

#[test]
fn looks_come_when_they_are_due_and_one_at_a_time() {
    let mut life = Life::new(PLAIN, 0);
    assert_eq!(life.due(5_000), Step::Nothing, "nobody wants to look");
    life.look_at(Some(1_000));
    assert_eq!(life.next_ms(), Some(1_000));
    assert_eq!(life.due(1_000), Step::Ask(Ask::Look));
    life.begin(Ask::Look, 1_000);
    assert_eq!(life.due(1_001), Step::Nothing);
    assert_eq!(
        life.due(20_000),
        Step::Ask(Ask::Renew),
        "a look delays none"
    );
    life.begin(Ask::Renew, 20_000);
    assert_eq!(life.answered(Ask::Look, &STANDS, 20_001), News::default());
    assert_eq!(life.due(20_002), Step::Nothing, "a renewal is a look");
    life.answered(Ask::Renew, &STANDS, 20_003);
    assert_eq!(life.due(20_003), Step::Ask(Ask::Look));
    life.answered(Ask::Renew, &GONE, 20_003);
    assert_eq!(life.due(20_003), Step::Nothing, "of a lost one");
}

#[test]
fn many_holds_are_renewed_together_and_never_late() {
    let plain = Life::new(PLAIN, 0).next_ms().expect("a renewal");
    let mut moments = std::collections::BTreeSet::new();
    for share in 0..64 {
        let life = Life::new(PLAIN, 0).among_many(share << 26);
        let at = life.next_ms().expect("a renewal");
        assert!(at <= plain && at >= plain / 2, "{at} of {plain}");
        assert_eq!(life.due(at), Step::Ask(Ask::Renew));
        moments.insert(at);
    }
    assert!(moments.len() > 8, "not all at once: {moments:?}");
    assert!(moments.iter().all(|at| at % 250 == 0), "{moments:?}");
}

fn doubtful() -> Own {
    Own::Doubtful("the file is gone".to_owned())
}

fn looked(life: &mut Life, seen: Own, at_ms: u64) -> News {
    life.looked(Ok::<_, &str>(seen), at_ms)
}

#[test]
fn a_state_that_may_be_the_middle_of_a_write_is_a_loss_if_it_stays() {
    // The times of the looks, and whether the last of them is a loss.
    for (looks, is_loss) in [
        (&[0, 600][..], false),
        (&[0, 100, 499], false),
        (&[0, 250, 500], true),
        // The holder was stopped for a minute, and has seen nothing of that.
        (&[0, 60_000], false),
        (&[0, 60_000, 120_000], true),
    ] {
        let mut life = Life::new(PLAIN, 0);
        let mut last = News::default();
        for at_ms in looks {
            assert_eq!(last.lost, None, "{looks:?}");
            last = looked(&mut life, doubtful(), *at_ms);
        }
        assert_eq!(last.lost.is_some(), is_loss, "{looks:?}");
        assert_eq!(last.is_unsure, !is_loss, "{looks:?}");
    }
    let mut life = Life::new(PLAIN, 0);
    let stands = || STANDS.map(Own::Stands);
    assert!(looked(&mut life, doubtful(), 0).is_unsure);
    assert!(looked(&mut life, doubtful(), 400).is_unsure);
    // What is not known neither ends the doubt nor is a loss.
    assert!(life.looked(Err("no answer"), 500).is_unsure);
    assert_eq!(life.looked(stands(), 600), News::default());
    assert!(
        looked(&mut life, doubtful(), 800).is_unsure,
        "it begins anew"
    );
    let lost = life.looked(Ok::<_, &str>(Own::Lost("the file is gone".to_owned())), 900);
    let what = "the file is gone".to_owned();
    assert_eq!(lost.lost, Some(Loss::Gone(Some(what))));
    assert_eq!(
        looked(&mut life, doubtful(), 1_000),
        News::default(),
        "told once"
    );
}

#[test]
fn an_answer_that_is_older_than_the_loss_brings_nothing_back() {
    let mut life = Life::new(LEASE, 0);
    life.begin(Ask::Renew, 10);
    assert_eq!(life.answered(Ask::Look, &GONE, 20), gone());
    assert_eq!(life.answered(Ask::Renew, &STANDS, 30), News::default());
    assert!(life.is_lost() && life.next_ms().is_none());
}

#[test]
fn a_lease_that_ran_out_while_the_driver_was_stopped_is_a_loss() {
    let mut life = Life::new(LEASE, 0);
    assert_eq!(life.lapse(59_999), News::default());
    let lost = News {
        lost: Some(Loss::Silence { left_ms: 0 }),
        ..News::default()
    };
    assert_eq!(life.lapse(60_000), lost, "nothing was asked that failed");
    assert_eq!(life.lapse(60_001), News::default(), "told once");
    assert!(Life::new(PLAIN, 0).lapse(u64::MAX).lost.is_none());
}
