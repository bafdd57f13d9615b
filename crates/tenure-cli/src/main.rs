//! The `tenure` binary: one holder at a time.
//!
//! `verb` reads a line, `request` says what it means, `command` carries it out, `supervise` keeps a command under its locks, and
//! `render` answers.
//!
//! **Who may call whom.** The binary calls every other crate but the library, and none calls it.
#![allow(
    clippy::result_large_err,
    reason = "a failure is made once in the life of the process, right before its end"
)]

mod args;
mod audit_writer;
mod command;
mod dialect;
mod exit;
mod failure;
#[cfg(unix)]
mod host;
mod ids;
mod output;
mod render;
mod request;
#[cfg_attr(windows, path = "signals/windows.rs")]
mod signals;
mod speech;
mod spelling;
mod store;
mod supervise;
mod trace;
mod verb;

/// musl's allocator maps and unmaps pages for every few allocations, which at the size of our
/// start-up costs more than all the rest of it. This one asks the kernel once.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ! {
    let words = std::env::args_os().collect::<Vec<_>>();
    let ending = match verb::parse(&words) {
        Ok(parsed) => command::carry_out(parsed),
        Err(refused) => command::misread(&words, refused).into(),
    };
    exit::leave(ending)
}
