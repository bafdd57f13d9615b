//! A daemon of which there is one: the terminal is told if another one runs, and the lock goes on in the background.
//!
//! ```text
//! daemon start FOLDER
//! daemon stop FOLDER
//! ```
//!
//! `start` takes the lock first, so that a person reads who has it. Then it forks, and the copy goes on with the hold. The
//! copy ends at SIGTERM, or when `stop` asks the holder to end, and frees the lock.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]
#![allow(unsafe_code, reason = "a fork is no safe call")]

#[cfg(unix)]
mod unix;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("this example needs Unix");
}
