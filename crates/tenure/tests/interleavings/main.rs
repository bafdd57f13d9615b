//! The parts of the library where threads of one process meet, in the orders in which their steps may
//! come.
//!
//! Compiled here are the library's own files, with shuttle's primitives in place of those that
//! `src/sync.rs` names. Each test is a small scenario with a property that holds at its end; a thread
//! that would sleep for ever is a failure too. [`explore`] tries all orders where they are few enough.
//!
//! A check that finds nothing proves nothing, so each property is also shown a caller that does it
//! wrong ([`finds`]). Decision 0019 has the defects that were put into the files themselves.
//!
//! Left out: anything with a file descriptor, and memory orderings, for shuttle knows but one order
//! of all steps.

#![cfg(target_os = "linux")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files are the library's, which uses all of them"
)]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

#[path = "../../../tenure-engine/src/cancel.rs"]
mod cancel;
mod guard;
#[path = "../../../tenure-engine/src/offload.rs"]
mod offload;
mod turns;
mod wait;

/// What the library's files name in place of the standard library.
mod sync {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic};
    pub(crate) use shuttle::thread;
    use std::sync::PoisonError;

    pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use tenure_engine::clock::{Clock, SystemClock};

/// How many orders are tried of one scenario.
struct Effort {
    /// Drawn at random, and so many more with few changes between threads: these find what is wrong
    /// soonest.
    drawn: usize,
    /// One after the other; all of them, if they are no more.
    in_turn: usize,
    /// What the draw begins with; the same each time, so that what failed fails again.
    seed: u64,
}

/// With `TENURE_INTERLEAVINGS=long` in the environment a hundred times as many, others each time:
/// `TENURE_INTERLEAVINGS=long cargo test --release -p tenure --test interleavings`.
fn effort() -> Effort {
    if std::env::var_os("TENURE_INTERLEAVINGS").is_some_and(|length| length == "long") {
        let seed = SystemClock::new(None).now().wall_us;
        Effort {
            drawn: 100_000,
            in_turn: 500_000,
            seed,
        }
    } else {
        Effort {
            drawn: 1_000,
            in_turn: 5_000,
            seed: 1,
        }
    }
}

/// Runs a scenario in all orders of its steps, or in many.
fn explore(scenario: fn()) {
    fn run(scheduler: impl Scheduler + 'static, scenario: fn()) {
        let mut config = Config::new();
        // That it knows no memory orderings: said above, once.
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(scenario);
    }
    let Effort {
        drawn,
        in_turn,
        seed,
    } = effort();
    run(RandomScheduler::new_from_seed(seed, drawn), scenario);
    run(PctScheduler::new_from_seed(seed, 3, drawn), scenario);
    run(DfsScheduler::new(Some(in_turn), false), scenario);
}

/// That the exploration finds what a wrong caller does.
fn finds(what: &str, scenario: fn()) {
    let found = std::panic::catch_unwind(|| explore(scenario));
    let panic = found.expect_err("some order shows it");
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains(what)), "{said:?}");
}
