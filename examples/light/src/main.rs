//! A program with the lightest build of the library: it has to be told where its locks are.
//!
//! `light DIR NAME` takes the lock, waits for it up to 10 s, says its token, and keeps it until stdin ends. `light DIR NAME try`
//! does not wait. `light DIR NAME run CMD...` runs a command under the lock. Exit code 4: another caller has the lock.

use std::error::Error;
use std::io::Read;
use std::process::{Command, ExitCode};
use tenure::guard::{AcquireError, Guard, LockManager, Options, Wait};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(name)) = (words.next(), words.next()) else {
        return Err("usage: light DIR NAME [try | run CMD...]".into());
    };
    let verb = words.next().unwrap_or_default();
    let wait = if verb == "try" {
        Options::new().wait(Wait::No)
    } else {
        Options::new()
    };
    let locks = LockManager::new(folder)?;
    match locks.acquire_with(&name, &wait.why("light")) {
        Ok(guard) => work(&guard, &verb, words),
        Err(AcquireError::Held(refused)) => {
            eprintln!("{refused}");
            Ok(ExitCode::from(4))
        }
        Err(error) => Err(error.into()),
    }
}

fn work(
    guard: &Guard,
    verb: &str,
    mut words: impl Iterator<Item = String>,
) -> Result<ExitCode, Box<dyn Error>> {
    println!("{}", guard.token());
    if verb != "run" {
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = words.next().ok_or("which command?")?;
    // The command learns by these variables under which lock it works, and where that is.
    let status = Command::new(program)
        .args(words)
        .envs(guard.envs())
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
