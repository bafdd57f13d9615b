//! The library at work, in a process of its own: so many rounds of one kind.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use tenure::guard::{Again, LockManager, Options, Wait};

/// The first word of such a process: `round KIND FOLDER TIMES`.
pub(crate) const WORD: &str = "round";

/// Takes a free lock and gives it back.
pub(crate) const HOLD: &str = "acquire and release";

/// Waits for a lock that another thread holds, and hands it over to that thread, which waits then.
pub(crate) const HAND_OVER: &str = "hand-over between two threads and back";

/// How long each hold lasts. Before its end the other thread has fallen asleep, also where callgrind runs it.
const HELD: Duration = Duration::from_millis(30);

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
    let times = times.parse()?;
    match kind.as_str() {
        HOLD => {
            for _ in 0..times {
                locks.acquire("lock")?.release()?;
            }
            Ok(())
        }
        HAND_OVER => thread::scope(|scope| {
            let other = scope.spawn(|| turns(&locks, times).map_err(|why| why.to_string()));
            turns(&locks, times)?;
            other.join().map_err(|_| "the other thread panicked")??;
            Ok(())
        }),
        _ => Err("there is no such kind".into()),
    }
}

fn turns(locks: &LockManager, times: u32) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::new().again(Again::Wait).wait(Wait::Forever);
    for _ in 0..times {
        let guard = locks.acquire_with("lock", &options)?;
        thread::sleep(HELD);
        guard.release()?;
    }
    Ok(())
}
