//! The parts of the library where threads of one process meet, in the possible orders of their steps.
//!
//! The library's own files are compiled here, with shuttle's primitives in place of those that
//! `src/sync.rs` names. Each test is a small scenario with a property that holds at its end; a thread
//! that would sleep for ever is a failure too. [`explore`] tries all orders where they are few enough.
//!
//! A check that finds nothing proves nothing. So each property is also tested on a caller that breaks it
//! ([`finds`]). Decision 0014 lists the defects that were put into the files themselves.
//!
//! Left out: anything with a file descriptor, and memory orderings, because shuttle knows only one order
//! of all steps.

#![cfg(target_os = "linux")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files are the library's, which uses all of them"
)]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

#[path = "../../../tenure-os/src/cancel.rs"]
mod cancel;
mod ends;
#[path = "../../../tenure-store/src/file/ends.rs"]
mod files;
mod guard;
#[path = "../../../tenure-os/src/logs.rs"]
mod logs;
#[path = "../../../tenure-os/src/offload.rs"]
mod offload;
mod turns;
mod wait;

/// The module that the library's files name in place of the standard library.
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
use tenure_os::clock::{Clock, SystemClock};

/// How many orders are tried of one scenario.
struct Effort {
    /// Random orders, and as many more with few changes between threads: these find defects soonest.
    drawn: usize,
    /// Orders in turn, and all of them if they are no more than this.
    in_turn: usize,
    /// The seed. It is the same each time, so that a failure can be repeated.
    seed: u64,
}

/// With `TENURE_INTERLEAVINGS=long` in the environment, a hundred times as many orders, different ones
/// each time: `TENURE_INTERLEAVINGS=long cargo test --release -p tenure --test interleavings`.
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
        // Switches off shuttle's warning about memory orderings; the module's documentation says it.
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

/// Asserts that the exploration finds the error of a wrong caller.
fn finds(what: &str, scenario: fn()) {
    let found = std::panic::catch_unwind(|| explore(scenario));
    let panic = found.expect_err("some order shows it");
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(said.is_some_and(|said| said.contains(what)), "{said:?}");
}
