//! A command-line tool whose readers work beside each other, and whose writer works alone.
//!
//! ```text
//! figures show FILE [--wait-ms N]
//! figures add FILE TEXT [--wait-ms N]
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 a wrong call, 75 (`EX_TEMPFAIL`) if somebody else has the file for too long. A script may
//! call the tool under `tenure run`; then it is refused at once where it would wait for its own caller.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tenure::guard::{AcquireError, LockManager, Options};

const USAGE: &str =
    "usage: figures show FILE [--wait-ms N]\n       figures add FILE TEXT [--wait-ms N]";

/// Somebody else has it for too long: another call may be luckier.
const TEMPFAIL: u8 = 75;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (words, wait) = match words.as_slice() {
        [rest @ .., flag, ms] if flag == "--wait-ms" => match ms.parse() {
            Ok(ms) => (rest.to_vec(), Duration::from_millis(ms)),
            Err(_) => return usage(),
        },
        _ => (words, Duration::from_secs(10)),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["show", file] => locked(file, &Options::new().shared().wait(wait), || show(file)),
        ["add", file, text] => locked(file, &Options::new().wait(wait), || add(file, text)),
        _ => return usage(),
    };
    match done {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // The text says who has it, since when, and why.
            eprintln!("figures: {error}");
            match error.downcast_ref::<AcquireError>() {
                Some(error) if error.is_held() => ExitCode::from(TEMPFAIL),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// Works on a file under the lock in a folder beside it.
fn locked(
    file: &str,
    options: &Options,
    work: impl FnOnce() -> std::io::Result<String>,
) -> Result<String, Failure> {
    let locks = LockManager::new(Path::new(file).with_extension("locks"))?;
    let guard = locks.acquire_with("figures", options)?;
    let said = work()?;
    guard.release()?;
    Ok(said)
}

fn show(file: &str) -> std::io::Result<String> {
    std::fs::read_to_string(file)
}

fn add(file: &str, text: &str) -> std::io::Result<String> {
    let mut all = std::fs::read_to_string(file).unwrap_or_default();
    all.push_str(text);
    all.push('\n');
    std::fs::write(file, all)?;
    Ok(String::new())
}
