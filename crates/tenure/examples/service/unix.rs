//! What this program does.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;
use tenure::guard::{Again, Guard, LockManager, Options, Wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How the job ended.
enum Ended {
    /// The service is to end.
    Asked,
    /// Another process goes on with it.
    Taken,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (path, tick) = arguments()?;
    let mut end = signal(SignalKind::terminate())?;
    let locks = LockManager::open()?;
    let options = Options::new()
        .wait(Wait::Forever)
        .again(Again::Wait)
        .why("the nightly job");
    loop {
        // Everything but the job goes on in this process meanwhile.
        let guard = tokio::select! {
            guard = locks.acquire_async("nightly", &options) => guard?,
            _ = end.recv() => return Ok(()),
        };
        eprintln!("{} works with token {}", std::process::id(), guard.token());
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let ended = job(&guard, file, tick, &mut end).await?;
        // Of a lost lock this says so; another process may be at work by then.
        if let Err(error) = guard.release_async().await {
            eprintln!("{error}");
        }
        if let Ended::Asked = ended {
            return Ok(());
        }
    }
}

/// Works as long as the lock is this process's.
async fn job(
    guard: &Guard,
    mut file: File,
    tick: Duration,
    end: &mut Signal,
) -> std::io::Result<Ended> {
    loop {
        writeln!(file, "{} {}", std::process::id(), guard.token())?;
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            () = guard.stop_requested() => return Ok(Ended::Taken),
            _ = end.recv() => return Ok(Ended::Asked),
        }
    }
}

fn arguments() -> Result<(String, Duration), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("usage: service FILE [--tick-ms N]")?;
    let tick_ms = match (words.next().as_deref(), words.next()) {
        (None, _) => 1_000,
        (Some("--tick-ms"), Some(number)) => number.parse()?,
        _ => return Err("usage: service FILE [--tick-ms N]".into()),
    };
    Ok((path, Duration::from_millis(tick_ms)))
}
