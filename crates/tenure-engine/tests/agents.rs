//! What an agent's hooks do with a store: leases of several locks at once, signs of life, and their end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use std::cell::Cell;
use std::path::Path;
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use tenure_core::{
    AgentKey, Entering, Force, Holder, Kind, LockName, Now, Patience, Policy, Request, RequestId,
    Terms,
};
use tenure_engine::agent::{Agent, LeaseTerms, Wanted};
use tenure_os::clock::{Clock, SystemClock, instant, since};
use tenure_os::process::Identity;
use tenure_store::contract::AgentSign;
use tenure_store::file::{FileStore, ThreadSleeper};
use tenure_store::memory::MemoryStore;
use tenure_store::{Store, Verbs};

const SILENCE: Duration = Duration::from_millis(600);

fn store(folder: &Path) -> FileStore {
    let here = Identity::current().host;
    FileStore::new(folder, here, Box::new(ThreadSleeper))
}

fn new_clock() -> SystemClock {
    SystemClock::new(Identity::current().host.boot_id.as_deref())
}

fn key(text: &str) -> AgentKey {
    text.parse().expect("a key")
}

fn wanted(names: &[&str]) -> Vec<Wanted> {
    let want = |name: &&str| Wanted {
        name: LockName::new(*name).expect("a name"),
        path: Some(format!("src/{name}.rs")),
    };
    names.iter().map(want).collect()
}

/// All agents of a test have the same host: this process.
fn terms(wait: Duration) -> LeaseTerms {
    let identity = Identity::current();
    LeaseTerms {
        owner: Some(identity.process),
        here: identity.host,
        actor: "tester".to_owned(),
        why: "an edit".to_owned(),
        silence_ms: u64::try_from(SILENCE.as_millis()).unwrap(),
        max_age_ms: 60_000,
        wait,
    }
}

fn names_of(agent: &Agent<'_>) -> Vec<String> {
    let holds = agent.holds().expect("a look");
    holds.iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn an_agent_gets_all_its_leases_or_none_and_keeps_what_it_had() {
    let scratch = tempfile::tempdir().unwrap();
    let (files, memory) = (store(scratch.path()), MemoryStore::new(Policy::NATIVE));
    for store in [&files as &dyn Store, &memory] {
        let clock = new_clock();
        let (first, second) = (key("claude/1/a"), key("claude/1/b"));
        let of = |key| Agent {
            store,
            clock: &clock,
            key,
        };
        let (first, second) = (of(&first), of(&second));
        let now = terms(Duration::ZERO);
        assert_eq!(
            first.take(&wanted(&["b", "a", "a"]), &now).unwrap().len(),
            2
        );
        // Both again, and one more.
        let again = first.take(&wanted(&["a", "b", "c"]), &now).unwrap();
        let new: Vec<bool> = again.iter().map(|lease| lease.acquired.is_some()).collect();
        assert_eq!(new, [false, false, true]);
        let refused = second.take(&wanted(&["0", "b", "z"]), &now).unwrap_err();
        assert_eq!(refused.name.as_str(), "b");
        let facts = refused.facts();
        assert!(
            facts.starts_with("src/b.rs is leased by claude 1/a since "),
            "{facts}"
        );
        assert!(facts.contains("retry_after_ms"), "{facts}");
        assert_eq!(names_of(&second), [""; 0], "none of them");
        assert_eq!(names_of(&first), ["a", "b", "c"]);
        // The session speaks for both, and frees what is left.
        let session = key("claude/1");
        let session = of(&session);
        second.take(&wanted(&["z"]), &now).unwrap();
        assert_eq!(second.free().unwrap().len(), 1);
        assert_eq!(names_of(&session), ["a", "b", "c"]);
        assert_eq!(session.free().unwrap().len(), 3);
        assert_eq!(names_of(&session), [""; 0]);
        assert_eq!(session.free().unwrap().len(), 0, "nothing is left");
        second.take(&wanted(&["a", "b", "c"]), &now).unwrap();
    }
    let left = std::fs::read_dir(scratch.path()).unwrap();
    let signs = left.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".agent-")
    });
    assert_eq!(signs.count(), 1, "of the one that took something at last");
}

/// The claim of a run lives as long as its process does, whatever its agent does.
#[test]
fn a_claim_that_is_not_judged_by_the_signs_of_its_agent_leaves_none() {
    let scratch = tempfile::tempdir().unwrap();
    let lock = LockName::new("a").unwrap();
    let mut request = Request {
        holder: Holder {
            facts: Vec::new(),
            request_id: RequestId::new("run").unwrap(),
            actor: "tester".to_owned(),
            process: None,
            command: None,
            host: Identity::current().host.into(),
            why: "a run".to_owned(),
        },
        kind: Kind::Kernel,
        ttl_ms: 60_000,
        force: Force::No,
        patience: Patience::Queue,
        terms: Terms::default(),
    };
    request.holder.set_agent(&key("claude/1/a"));
    let files = store(scratch.path());
    let entered = files.enter(&lock, &request, &new_clock().now()).unwrap();
    assert!(matches!(entered.entering, Entering::Granted { .. }));
    let left = std::fs::read_dir(scratch.path()).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["a.tenure"]);
}

#[test]
fn signs_of_life_and_calls_under_way_keep_a_hold_and_silence_ends_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (files, memory) = (store(scratch.path()), MemoryStore::new(Policy::NATIVE));
    for (store, tells_calls) in [(&files as &dyn Store, true), (&memory, false)] {
        let clock = new_clock();
        let (first, second) = (key("claude/1/a"), key("claude/1/b"));
        let of = |key| Agent {
            store,
            clock: &clock,
            key,
        };
        let (first, second) = (of(&first), of(&second));
        first.take(&wanted(&["a"]), &terms(Duration::ZERO)).unwrap();
        for _ in 0..8 {
            sleep(SILENCE / 4);
            first.seen(AgentSign::Seen).unwrap();
            assert!(
                second
                    .take(&wanted(&["a"]), &terms(Duration::ZERO))
                    .is_err()
            );
        }
        if tells_calls {
            first.seen(AgentSign::Began("toolu_1")).unwrap();
            first.seen(AgentSign::Began("toolu_2")).unwrap();
            first.seen(AgentSign::Ended("toolu_1")).unwrap();
            sleep(SILENCE * 2);
            assert!(
                second
                    .take(&wanted(&["a"]), &terms(Duration::ZERO))
                    .is_err(),
                "it calls"
            );
            first.seen(AgentSign::Ended("toolu_2")).unwrap();
        }
        // A sign of a sibling is none of this agent.
        let began = instant();
        let taken = second.take(&wanted(&["a"]), &terms(SILENCE * 20)).unwrap();
        assert!(since(began) >= SILENCE / 2 && since(began) < SILENCE * 10);
        assert!(taken[0].acquired.is_some());
        assert_eq!(names_of(&first), [""; 0]);
    }
}

/// A person refuses a call that its hook let pass, so nothing tells of its end.
#[test]
fn the_end_of_a_turn_ends_the_agents_open_calls_and_no_siblings() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(scratch.path());
    let clock = new_clock();
    let (main, helper, other) = (key("claude/1"), key("claude/1/b"), key("claude/2"));
    let of = |key| Agent {
        store: &store,
        clock: &clock,
        key,
    };
    let (main, helper, other) = (of(&main), of(&helper), of(&other));
    let now = terms(Duration::ZERO);
    main.take(&wanted(&["a"]), &now).unwrap();
    helper.take(&wanted(&["b"]), &now).unwrap();
    for agent in [&main, &helper] {
        agent.seen(AgentSign::Began("toolu_1")).unwrap();
        agent.seen(AgentSign::Began("toolu_2")).unwrap();
    }
    sleep(SILENCE * 2);
    main.seen(AgentSign::Rests).unwrap();
    assert!(
        other.take(&wanted(&["a"]), &now).is_err(),
        "it has just been seen"
    );
    let began = instant();
    other.take(&wanted(&["a"]), &terms(SILENCE * 20)).unwrap();
    assert!(since(began) < SILENCE * 10, "silence counts");
    assert!(
        other.take(&wanted(&["b"]), &now).is_err(),
        "a sibling calls"
    );
    // The next turn has calls of its own.
    main.take(&wanted(&["c"]), &now).unwrap();
    main.seen(AgentSign::Began("toolu_3")).unwrap();
    sleep(SILENCE * 2);
    assert!(other.take(&wanted(&["c"]), &now).is_err(), "it calls");
}

/// In a container that is minutes old, the first call of all takes the first lock of all, and works for long.
#[test]
fn a_call_that_began_before_the_agent_had_anything_keeps_what_it_takes() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(&scratch.path().join("locks"));
    let clock = new_clock();
    let (first, second) = (key("claude/1/a"), key("claude/1/b"));
    let of = |key| Agent {
        store: &store,
        clock: &clock,
        key,
    };
    let (first, second) = (of(&first), of(&second));
    let now = terms(Duration::ZERO);
    first.seen(AgentSign::Began("toolu_1")).unwrap();
    assert_eq!(names_of(&first), [""; 0], "a call is no hold");
    first.take(&wanted(&["a"]), &now).unwrap();
    sleep(SILENCE * 2);
    assert!(second.take(&wanted(&["a"]), &now).is_err(), "it calls");
    first.seen(AgentSign::Ended("toolu_1")).unwrap();
    second.take(&wanted(&["a"]), &terms(SILENCE * 20)).unwrap();
}

/// A clock at which another call comes between two steps of the one that asks for the time.
struct Between<'a> {
    clock: SystemClock,
    /// How often it was asked.
    asked: Cell<u32>,
    /// At which time.
    at: u32,
    other: &'a dyn Fn(),
}

impl Clock for Between<'_> {
    fn now(&self) -> Now {
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() == self.at {
            (self.other)();
        }
        self.clock.now()
    }

    fn instant(&self) -> Instant {
        self.clock.instant()
    }
}

/// Signs of life keep what the agent holds, for longer than its silence may last.
#[track_caller]
fn lives_by_its_signs(agent: &Agent<'_>, other: &Agent<'_>, name: &str) {
    for _ in 0..8 {
        sleep(SILENCE / 4);
        agent.seen(AgentSign::Seen).unwrap();
        let refused = other.take(&wanted(&[name]), &terms(Duration::ZERO));
        assert!(refused.is_err(), "{name} is lost, though its agent is seen");
    }
}

#[test]
fn a_lease_that_is_taken_while_its_agent_ends_lives_by_signs() {
    let mut left = 0;
    for at in 1..=8 {
        let scratch = tempfile::tempdir().unwrap();
        let store = store(scratch.path());
        let clock = new_clock();
        let (key, other, session) = (key("claude/1/a"), key("claude/2"), key("claude/1"));
        let of = |key| Agent {
            store: &store,
            clock: &clock,
            key,
        };
        let (agent, other) = (of(&key), of(&other));
        agent.take(&wanted(&["a"]), &terms(Duration::ZERO)).unwrap();
        let takes = || {
            agent.take(&wanted(&["b"]), &terms(Duration::ZERO)).unwrap();
        };
        let between = Between {
            clock: new_clock(),
            asked: Cell::new(0),
            at,
            other: &takes,
        };
        let ends = Agent {
            store: &store,
            clock: &between,
            key: &session,
        };
        ends.free().unwrap();
        if between.asked.get() < at {
            break;
        }
        // Whether the end found it or not, no look at the agent says so: this asks the lock.
        let reading = store.read(&LockName::new("b").unwrap(), None).unwrap();
        if reading.entry().unwrap().granted().next().is_some() {
            left += 1;
            lives_by_its_signs(&agent, &other, "b");
        }
    }
    assert!(left > 1, "the end asks for the time at its steps: {left}");
}

/// The agent waits in line while its session ends, which looks for holds alone, and is granted the lock then.
#[test]
fn a_waiter_whose_agent_has_ended_meanwhile_lives_by_signs_from_its_grant_on() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(scratch.path());
    let clock = new_clock();
    let (key, other, session) = (key("claude/1/a"), key("claude/2"), key("claude/1"));
    let of = |key| Agent {
        store: &store,
        clock: &clock,
        key,
    };
    let (agent, other, session) = (of(&key), of(&other), of(&session));
    let long = LeaseTerms {
        silence_ms: 60_000,
        ..terms(Duration::ZERO)
    };
    other.take(&wanted(&["a"]), &long).unwrap();
    let waits = || {
        let reading = store.read(&LockName::new("a").unwrap(), None).unwrap();
        reading.entry().unwrap().claims.len() == 2
    };
    scope(|scope| {
        let waiter = scope.spawn(|| {
            let agent = Agent {
                store: &store,
                clock: &new_clock(),
                key: &key,
            };
            let taken = agent.take(&wanted(&["a"]), &terms(Duration::from_secs(20)));
            taken.unwrap();
        });
        let begun = instant();
        while !waits() {
            assert!(since(begun) < Duration::from_secs(20), "it waits");
            sleep(Duration::from_millis(2));
        }
        let of_agents = |file: &std::fs::DirEntry| {
            let name = file.file_name();
            name.to_string_lossy().starts_with(".agent-")
        };
        let files = std::fs::read_dir(scratch.path())
            .unwrap()
            .map(Result::unwrap);
        assert_eq!(
            files.filter(of_agents).count(),
            2,
            "its signs count already"
        );
        assert_eq!(session.free().unwrap(), [], "it holds nothing yet");
        assert_eq!(other.free().unwrap().len(), 1);
        waiter.join().unwrap();
    });
    lives_by_its_signs(&agent, &other, "a");
}

#[test]
fn one_call_of_an_agent_waits_and_its_place_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(scratch.path());
    let clock = new_clock();
    let keys = ["claude/1/a", "claude/1/b", "claude/1/c"].map(key);
    let [first, second, third] = keys.each_ref().map(|key| Agent {
        store: &store,
        clock: &clock,
        key,
    });
    let long = LeaseTerms {
        silence_ms: 60_000,
        ..terms(Duration::from_millis(300))
    };
    first.take(&wanted(&["a"]), &long).unwrap();
    let gate = Barrier::new(4);
    let places: Vec<Option<usize>> = scope(|scope| {
        let calls = [(); 4].map(|()| {
            scope.spawn(|| {
                gate.wait();
                let clock = new_clock();
                let agent = Agent {
                    store: &store,
                    clock: &clock,
                    key: &keys[1],
                };
                agent.take(&wanted(&["a"]), &long).unwrap_err().place
            })
        });
        calls.map(|call| call.join().unwrap()).to_vec()
    });
    assert!(places.contains(&Some(1)), "{places:?}");
    let name = LockName::new("a").unwrap();
    let waiting = || {
        let reading = store.read(&name, None).unwrap();
        reading
            .entry()
            .unwrap()
            .claims
            .iter()
            .filter(|claim| claim.token.is_none())
            .count()
    };
    assert_eq!(waiting(), 1, "one place, however many calls");
    let other = third.take(&wanted(&["a"]), &long).unwrap_err();
    assert_eq!(other.place, Some(2), "{}", other.facts());
    // A lease ends with its agent: nothing says that it is free in a second.
    assert!(
        other.facts().contains("(retry_after_ms 30000)"),
        "{}",
        other.facts()
    );
    assert!(
        other.facts().contains("your place 2 is kept"),
        "{}",
        other.facts()
    );
    // The second agent comes back to its place.
    let again = second.take(&wanted(&["a"]), &long).unwrap_err();
    assert_eq!((again.place, waiting()), (Some(1), 2));
    assert_eq!(first.free().unwrap().len(), 1);
    second.take(&wanted(&["a"]), &long).unwrap();
    assert_eq!(waiting(), 1);
}

#[test]
fn calls_of_one_agent_side_by_side_get_the_lease_once() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(scratch.path());
    let key = key("claude/1/a");
    for round in 0..20 {
        let name = format!("l{round}");
        let gate = Barrier::new(4);
        let new: usize = scope(|scope| {
            let calls = [(); 4].map(|()| {
                scope.spawn(|| {
                    gate.wait();
                    let clock = new_clock();
                    let agent = Agent {
                        store: &store,
                        clock: &clock,
                        key: &key,
                    };
                    let taken = agent.take(&wanted(&[&name]), &terms(Duration::from_secs(5)));
                    usize::from(taken.unwrap()[0].acquired.is_some())
                })
            });
            calls.map(|call| call.join().unwrap()).iter().sum()
        });
        assert_eq!(new, 1);
    }
}

#[test]
fn an_agent_that_holds_nothing_costs_one_look_and_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("locks");
    let store = store(&folder);
    let clock = new_clock();
    let key = key("claude/1/a");
    let agent = Agent {
        store: &store,
        clock: &clock,
        key: &key,
    };
    agent.seen(AgentSign::Seen).unwrap();
    agent.seen(AgentSign::Ended("x")).unwrap();
    assert_eq!(agent.free().unwrap(), []);
    assert!(!folder.exists(), "nothing was made");
    agent.seen(AgentSign::Began("x")).unwrap();
    agent.seen(AgentSign::Ended("x")).unwrap();
    // The end of an agent ends a call of it whose end was not told.
    agent.seen(AgentSign::Began("y")).unwrap();
    assert_eq!(agent.free().unwrap(), []);
    let left = std::fs::read_dir(&folder).unwrap();
    let signs = left.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".agent-")
    });
    assert_eq!(signs.count(), 0, "of a call that has ended");
    let agents = store.agents().expect("a file store keeps signs");
    assert!(!agents.may_hold(&key).unwrap());
    assert_eq!(agents.forget_old(&clock.now(), false).unwrap(), 0);
}

#[test]
fn a_sign_older_than_every_hold_is_forgotten() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store(scratch.path());
    let clock = new_clock();
    let key = key("claude/1/a");
    let agent = Agent {
        store: &store,
        clock: &clock,
        key: &key,
    };
    agent.take(&wanted(&["a"]), &terms(Duration::ZERO)).unwrap();
    let agents = store.agents().unwrap();
    let mut later = clock.now();
    assert_eq!(agents.forget_old(&later, true).unwrap(), 0);
    later.boot_ms += 24 * 3_600_000 + 60_000;
    assert_eq!(agents.forget_old(&later, true).unwrap(), 1, "it would be");
    assert!(agents.may_hold(&key).unwrap());
    assert_eq!(agents.forget_old(&later, false).unwrap(), 1);
    assert!(!agents.may_hold(&key).unwrap());
}
