//! What this program does.

use nix::unistd::{ForkResult, fork, setsid};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tenure::guard::{Guard, LockManager, Options, Wait};

const USAGE: &str = "usage: daemon start FOLDER\n       daemon stop FOLDER";

pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["start", folder] => start(folder),
        ["stop", folder] => stop(folder),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(folder: &str) -> Result<(), Box<dyn Error>> {
    let options = Options::new().wait(Wait::No).why("the daemon");
    let guard = LockManager::new(folder)?.acquire_with("daemon", &options)?;
    // SAFETY: a manager has threads, and the copy has none of them. It uses nothing of the manager; it makes its own.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        println!("the daemon runs as PID {child}");
        // No drop, so the lock stays the copy's.
        std::process::exit(0);
    }
    setsid()?;
    let locks = LockManager::new(folder)?;
    let guard = locks.adopt(guard)?;
    serve(&guard);
    guard.release()?;
    Ok(())
}

/// Works until somebody asks for the lock, or it is lost.
fn serve(guard: &Guard) {
    while !guard.should_stop() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stop(folder: &str) -> Result<(), Box<dyn Error>> {
    let locks = LockManager::new(folder)?;
    if locks.cancel("daemon", "asked by daemon stop")?.is_empty() {
        println!("no daemon runs");
    }
    let options = Options::new().wait(Duration::from_secs(10));
    locks.wait("daemon", &options)?;
    Ok(())
}
