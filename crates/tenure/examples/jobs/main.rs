//! A job runner over etcd: many machines take jobs from one folder that they share, and each job is done by one of them.
//!
//! ```text
//! jobs etcd://HOST:PORT/PREFIX FOLDER
//! ```
//!
//! A job is a file `NAME.job` with a line for `sh`. A runner that gets the lock of a job runs the line with
//! `TENURE_TOKEN` in its environment, and renames the file to `NAME.done`. A job that another runner has is passed over. A
//! runner that loses its lock kills its line, and leaves the job to the next one.

#![allow(
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use tenure::guard::{Guard, LockManager, Options, Wait};
use tenure::store::etcd::{Address, Credentials};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder] = words.as_slice() else {
        return Err("usage: jobs etcd://HOST:PORT/PREFIX FOLDER".into());
    };
    let locks = LockManager::etcd(&Address::parse(url)?, &Credentials::from_environment()?)?;
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".job").map(str::to_owned))
        .collect();
    names.sort();
    let options = Options::new()
        .wait(Wait::No)
        .ttl(Duration::from_secs(5))
        .why("a job");
    for name in names {
        let guard = match locks.acquire_with(&name, &options) {
            Ok(guard) => guard,
            Err(error) if error.is_held() => continue,
            Err(error) => return Err(error.into()),
        };
        // Another runner may have done it between the look at the folder and the grant.
        let job = Path::new(folder).join(format!("{name}.job"));
        if job.exists() {
            run(&guard, &job)?;
        }
        guard.release()?;
    }
    Ok(())
}

/// Runs a job, and marks it as done if it went well and the lock is still this runner's.
fn run(guard: &Guard, job: &Path) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new("sh").arg(job).envs(guard.envs()).spawn()?;
    let Some(status) = attended(guard, &mut child)? else {
        eprintln!(
            "{}: the lock was lost, another runner goes on",
            guard.name()
        );
        return Ok(());
    };
    guard.verify()?;
    if status.success() {
        std::fs::rename(job, job.with_extension("done"))?;
    }
    Ok(())
}

/// Waits for the end of a job. `None` if the lock was lost; the job is killed then.
fn attended(guard: &Guard, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if guard.is_lost() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
