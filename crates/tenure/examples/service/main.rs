//! A tokio service that runs on several machines' worth of processes, and does one job in one of them at a time.
//!
//! ```text
//! service FILE [--tick-ms N]
//! ```
//!
//! Each process waits for the lock `nightly`. The one that has it appends a line to FILE at each tick: its PID and its
//! fencing token. It stops at once when the lock is lost or another caller asks for it (`tenure cancel nightly`), and
//! gives the lock back at SIGTERM. The place of the lock is that of `tenure run`.

#![allow(clippy::print_stderr, reason = "a service says there what happens")]

#[cfg(unix)]
mod unix;

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("this example needs Unix");
}
