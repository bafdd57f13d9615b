//! The real binary is killed at each of its system calls in turn, or made to fail there, and the next
//! caller has to go on alone: for the locks of our own format (`native`) and for those whose records other
//! programs read (`published`).
//!
//! `driver` finds the points of a scenario and tries them; a row is a scenario, its title a section of
//! `docs/internals/crash-matrix.md` (`page`).
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the tests play know nothing of the store and its clock"
)]

#[path = "../support/standstill.rs"]
mod standstill;
#[path = "../support_crash/mod.rs"]
mod support_crash;
#[path = "../support_published/mod.rs"]
mod support_published;

/// Two tests for each row: a scenario is killed at its calls, and made to fail at them.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)+) => {
        const NAMES: &[&str] = &[$($scenario.name),+];

        $(
            #[test]
            fn $test() {
                crate::driver::crash(&$scenario);
            }
        )+

        mod failing {
            use super::*;

            $(
                #[test]
                fn $test() {
                    crate::driver::fail(&$scenario);
                }
            )+
        }
    };
}

mod disk;
mod driver;
mod native;
mod page;
mod power;
mod published;
