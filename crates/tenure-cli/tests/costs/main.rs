//! What calls cost, without a clock: their system calls and their instructions, compared with the table in
//! `docs/internals/costs.txt`.
//!
//! ```text
//! scripts/costs            # compares
//! scripts/costs --renew    # writes the table anew
//! ```
//!
//! # What is counted
//! - System calls of tenure's own process, by strace(1), without those of its command. The calls of
//!   `tenure --version` are taken off, so what a C library and a loader do at every start does not count.
//!   Nor do calls for memory, nor sleeps of threads on each other (`futex`), nor what a debug build of the standard
//!   library asks of a file before it closes it.
//! - Instructions from `main` on, by callgrind, of the debug build that the tests use.
//! - Of the library: what one more round costs, from the difference of two lengths of a loop.
//!
//! # How far a count may differ
//! - Each kind of system call not at all, with one exception: whether a command has ended when its run first
//!   looks is chance. Then the run sleeps, or does not. The calls of that are one kind, with a tolerance
//!   ([`EVENTS_OFF`]). A round of the library makes some calls now and then ([`ROUND_OFF`]); its
//!   thread that wakes up by the clock is not counted, nor which thread closes the file after a wait.
//! - Instructions by [`INSTRUCTIONS_OFF`] under the Rust that made the table and linked as its binary was, else by
//!   [`INSTRUCTIONS_OFF_ELSEWHERE`]. A hand-over of the library has none: the load decides which thread works.
//!
//! A smaller count is a difference as well: the table would no longer notice the way back.
//!
//! The table is of Linux on `x86_64`. Elsewhere nothing is compared, and the test says so.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what differs is for reading"
)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod round;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod table;

/// By how much the events of a call may differ: a sleep with its wake-up, and one more look.
const EVENTS_OFF: f64 = 4.0;

/// By how much the calls of a round of the library may differ, each kind: some are made now and then.
const ROUND_OFF: f64 = 0.2;

/// By how much instructions may differ, as a part of what the table has.
const INSTRUCTIONS_OFF: f64 = 0.05;

/// By how much instructions may differ under another Rust than that of the table, or with a C library that is
/// shared where that one is not.
const INSTRUCTIONS_OFF_ELSEWHERE: f64 = 0.3;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    match word(0) {
        Some(measure::ALONE) => return measure::becomes(false, &words[1..]),
        Some(measure::WITHOUT_AUXV) => return measure::becomes(true, &words[1..]),
        Some(round::WORD) => return round::main(&words[1..]),
        _ => {}
    }
    // As nextest asks for the tests.
    if words.iter().any(|word| word == "--list") {
        if !words.iter().any(|word| word == "--ignored") {
            println!("costs: test");
        }
        return ExitCode::SUCCESS;
    }
    let is_renewed = std::env::var_os("TENURE_COSTS").is_some_and(|value| value == "renew");
    let compared = measure::all().and_then(|measured| {
        if is_renewed {
            return table::write(&measured).map(|()| Vec::new());
        }
        Ok(table::differences(&table::read()?, &measured))
    });
    match compared {
        Ok(differences) if differences.is_empty() => ExitCode::SUCCESS,
        Ok(differences) => {
            for difference in differences {
                eprintln!("{difference}");
            }
            eprintln!("If that is meant: scripts/costs --renew, and say why in the commit.");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("costs: {why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("skipped: the table is of Linux on x86_64");
}
