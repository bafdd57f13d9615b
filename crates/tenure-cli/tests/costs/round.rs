//! The library at work, in a process of its own: so many rounds of one kind.

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;
use tenure::guard::{LockManager, Options, Wait};

/// The first word of such a process: `round KIND FOLDER TIMES`.
pub(crate) const WORD: &str = "round";

/// Takes a free lock and gives it back.
pub(crate) const HOLD: &str = "acquire and release";

/// Waits for a lock that another process holds, and hands it over to that process, which waits then.
pub(crate) const HAND_OVER: &str = "hand-over between two processes and back";

/// What that other process does. It is not counted.
const OTHER: &str = "the other process";

/// How long each hold lasts. Before its end the other process waits in the kernel, also where callgrind runs it.
const HELD: Duration = Duration::from_millis(30);

/// How long a process stays away after its hold: until the other one has its grant. In that time the two would meet at
/// the guard, or not, as chance has it.
const AWAY: Duration = Duration::from_millis(15);

pub(crate) fn main(words: &[String]) -> ExitCode {
    match rounds(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{WORD} {words:?}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn rounds(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [kind, folder, times] = words else {
        return Err("it takes a kind, a folder and a number".into());
    };
    let locks = LockManager::new(folder)?;
    let rounds: u32 = times.parse()?;
    match kind.as_str() {
        HOLD => {
            for _ in 0..rounds {
                locks.acquire("lock")?.release()?;
            }
        }
        HAND_OVER => {
            let mut other = Command::new(std::env::current_exe()?);
            other
                .args([WORD, OTHER, folder, times])
                .stdout(Stdio::piped());
            let mut other = other.spawn()?;
            // The other process holds the lock now, so that each of the rounds has to wait.
            let holds = &mut [0; 1];
            other.stdout.as_mut().ok_or("no pipe")?.read_exact(holds)?;
            let taken = turns(&locks, rounds, || Ok(()));
            let ended = other.wait()?;
            taken?;
            if !ended.success() {
                return Err(format!("the other process ended with {ended}").into());
            }
        }
        // A round more: it holds before the first round of the process that is counted, and says when it holds.
        OTHER => turns(&locks, rounds + 1, || {
            let mut out = std::io::stdout();
            out.write_all(b"!").and_then(|()| out.flush())
        })?,
        _ => return Err("there is no such kind".into()),
    }
    Ok(())
}

fn turns(
    locks: &LockManager,
    rounds: u32,
    granted: impl Fn() -> std::io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let options = Options::new().wait(Wait::Forever);
    for _ in 0..rounds {
        let guard = locks.acquire_with("lock", &options)?;
        granted()?;
        thread::sleep(HELD);
        guard.release()?;
        thread::sleep(AWAY);
    }
    Ok(())
}
