//! A program that was written against the types of the original resume lock, with its tests. Both
//! compile and pass unchanged. Only the feature `chrono` and one call, `judge_other_hosts`, were added
//! for us.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(
    clippy::disallowed_methods,
    reason = "the program works by chrono's clock, as it did before"
)]

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use std::fs;
use std::path::{Path, PathBuf};
use tenure::resume::{ResumeLock, ResumeLockData, ResumeLockManager, is_process_running};

// ---- the program -----------------------------------------------------------------------------

/// Resumes jobs, and shows which processes work on them.
#[derive(Clone)]
struct Resumer {
    locks: ResumeLockManager,
    storage: PathBuf,
}

/// A line of its `status`.
struct Running {
    job_id: String,
    since: DateTime<Utc>,
    alive: bool,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Resumer {
    fn new(storage: &Path) -> Result<Self, Failure> {
        Ok(Self {
            locks: ResumeLockManager::new(storage.to_path_buf())?.judge_other_hosts(),
            storage: storage.to_path_buf(),
        })
    }

    fn lock_file(&self, job_id: &str) -> PathBuf {
        let folder = self.storage.join("resume_locks");
        folder.join(format!("{job_id}.lock"))
    }

    async fn resume(&self, job_id: &str) -> Result<(ResumeLock, String), Failure> {
        let lock = self.locks.acquire_lock(job_id).await?;
        let data = lock.data();
        let said = format!(
            "{} resumed by PID {} on {} at {}",
            data.job_id,
            data.process_id,
            data.hostname,
            data.acquired_at.format("%Y-%m-%d %H:%M:%S UTC")
        );
        Ok((lock, said))
    }

    fn read(&self, job_id: &str) -> Result<ResumeLockData, Failure> {
        let text = fs::read_to_string(self.lock_file(job_id))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn write(&self, data: &ResumeLockData) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(data)?;
        Ok(fs::write(self.lock_file(&data.job_id), text)?)
    }

    /// The processes that work on jobs, the longest first.
    fn status(&self, job_ids: &[&str]) -> Result<Vec<Running>, Failure> {
        let mut running = Vec::new();
        for job_id in job_ids {
            let ResumeLockData {
                job_id,
                process_id,
                hostname: _,
                acquired_at,
            } = self.read(job_id)?;
            running.push(Running {
                job_id,
                since: acquired_at,
                alive: is_process_running(process_id),
            });
        }
        running.sort_by_key(|one| one.since);
        Ok(running)
    }
}

/// How long a job has been worked on.
fn age(data: &ResumeLockData, now: DateTime<Utc>) -> TimeDelta {
    now.signed_duration_since(data.acquired_at)
}

// ---- its tests -------------------------------------------------------------------------------

fn scene() -> (tempfile::TempDir, Resumer) {
    let scratch = tempfile::tempdir().expect("a folder");
    let resumer = Resumer::new(scratch.path()).expect("a folder for locks");
    (scratch, resumer)
}

/// A number that no process has. It is the one of the original's tests, if that is free.
fn nobody() -> u32 {
    if is_process_running(999_999) {
        u32::MAX
    } else {
        999_999
    }
}

#[tokio::test]
async fn a_dead_process_of_any_host_is_cleaned() {
    let (_scratch, resumer) = scene();
    let stale = ResumeLockData {
        job_id: "test-job".to_string(),
        process_id: nobody(),
        hostname: "test-host".to_string(),
        acquired_at: Utc::now(),
    };
    resumer.write(&stale).expect("a record");
    let (lock, _) = resumer.resume("test-job").await.expect("a stale lock");
    assert_eq!(lock.data().process_id, std::process::id());
    drop(lock);
    assert!(!resumer.lock_file("test-job").exists());
}

#[tokio::test]
async fn a_free_lock_is_taken_and_says_when() {
    let (_scratch, resumer) = scene();
    let before = Utc::now() - TimeDelta::seconds(1);
    let (lock, said) = resumer.resume("test-job").await.expect("a free lock");
    let at: DateTime<Utc> = lock.data().acquired_at;
    assert!(before <= at && at <= Utc::now(), "{at}");
    assert!(age(lock.data(), Utc::now()) < TimeDelta::seconds(60));
    let day = at.format("%Y-%m-%d").to_string();
    assert!(said.contains(&day) && said.ends_with(" UTC"), "{said}");
    assert_eq!(resumer.read("test-job").expect("a record"), *lock.data());
}

#[tokio::test]
async fn a_held_lock_is_refused() {
    let (_scratch, resumer) = scene();
    let (_lock, _) = resumer.resume("test-job").await.expect("a free lock");
    let error = resumer.resume("test-job").await.expect_err("it is held");
    assert!(error.to_string().contains("already in progress"), "{error}");
}

#[tokio::test]
async fn a_process_of_another_hosts_name_that_runs_here_is_respected() {
    let (_scratch, resumer) = scene();
    let acquired_at = Utc
        .with_ymd_and_hms(2026, 2, 7, 10, 0, 0)
        .single()
        .expect("an instant");
    let live = ResumeLockData {
        hostname: "test-host".to_string(),
        acquired_at,
        ..ResumeLockData::new("test-job".to_string())
    };
    resumer.write(&live).expect("a record");
    let error = resumer.resume("test-job").await.expect_err("it is held");
    let said = format!(
        "Lock held by: PID {} on test-host (acquired 2026-02-07 10:00:00 UTC)",
        std::process::id()
    );
    assert!(error.to_string().contains(&said), "{error}");
}

#[test]
fn a_record_comes_back_to_the_nanosecond() {
    let data = ResumeLockData {
        acquired_at: Utc
            .timestamp_opt(1_770_458_400, 123_456_789)
            .single()
            .expect("an instant"),
        ..ResumeLockData::new("test-job".to_string())
    };
    let text = serde_json::to_string_pretty(&data).expect("a record");
    assert!(
        text.contains("\"acquired_at\": \"2026-02-07T10:00:00.123456789Z\""),
        "{text}"
    );
    let read: ResumeLockData = serde_json::from_str(&text).expect("the same record");
    assert_eq!(read.acquired_at, data.acquired_at);
    assert_eq!(
        (read.job_id, read.process_id),
        (data.job_id, data.process_id)
    );
}

#[test]
fn records_are_sorted_by_their_time() {
    let (_scratch, resumer) = scene();
    let now = Utc::now();
    for (job_id, minutes) in [("young", 1), ("old", 90)] {
        let data = ResumeLockData {
            acquired_at: now - TimeDelta::minutes(minutes),
            ..ResumeLockData::new(job_id.to_string())
        };
        resumer.write(&data).expect("a record");
    }
    let status = resumer.status(&["young", "old"]).expect("two records");
    let order: Vec<&str> = status.iter().map(|one| one.job_id.as_str()).collect();
    assert_eq!(order, ["old", "young"]);
    assert!(status.iter().all(|one| one.alive), "they are ours");
}
