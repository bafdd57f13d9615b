//! The library at work, in a process of its own: so many rounds of one kind.

use std::process::ExitCode;
use tenure::guard::LockManager;

/// The first word of such a process: `round KIND FOLDER TIMES`.
pub(crate) const WORD: &str = "round";

/// Takes a free lock and gives it back.
pub(crate) const HOLD: &str = "acquire and release";

pub(crate) fn main(words: &[String]) -> ExitCode {
    match rounds(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{WORD} {words:?}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn rounds(words: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [kind, folder, times] = words else {
        return Err("it takes a kind, a folder and a number".into());
    };
    let locks = LockManager::new(folder)?;
    for _ in 0..times.parse()? {
        match kind.as_str() {
            HOLD => locks.acquire("lock")?.release()?,
            _ => return Err("there is no such kind".into()),
        }
    }
    Ok(())
}
