//! What a resume lock's file says, as a Rust value: four fields and no more.
//!
//! The profile says what else stands in the file: the identity of the process, under a key of its
//! own.

use super::instant::{self, AcquiredAt};
use super::lock::hostname;
use crate::clock::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use tenure_core::{Claim, LockName};

/// Who holds a lock, and since when. Its JSON is the file's: `acquired_at` is RFC 3339 in UTC.
///
/// # Examples
/// ```
/// use tenure::resume::ResumeLockData;
/// let data: ResumeLockData = serde_json::from_str(
///     r#"{ "job_id": "job-7", "process_id": 31337, "hostname": "build-7",
///          "acquired_at": "2026-02-07T10:00:00.25Z" }"#,
/// )?;
/// assert_eq!(data.process_id, 31_337);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeLockData {
    /// The session or job.
    pub job_id: String,
    /// The process that holds it.
    pub process_id: u32,
    /// The machine on which that number means something; `unknown` if it has no name.
    pub hostname: String,
    /// When it was acquired.
    #[serde(with = "instant")]
    pub acquired_at: AcquiredAt,
}

impl ResumeLockData {
    /// The data of a lock that this process would acquire now. Acquires nothing.
    pub fn new(job_id: String) -> Self {
        Self {
            job_id,
            process_id: std::process::id(),
            hostname: hostname(&crate::process::Identity::current().host.name),
            acquired_at: instant::of_millis(SystemClock::new(None).now().stamp().wall_ms),
        }
    }

    /// What the record of a claim says.
    pub(super) fn of(name: &LockName, claim: &Claim) -> Self {
        Self {
            job_id: name.as_str().to_owned(),
            process_id: claim.holder.process.map_or(0, |process| process.pid),
            hostname: hostname(&claim.holder.host.name),
            acquired_at: instant::of_millis(claim.since.unwrap_or(claim.entered).wall_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
  "job_id": "job-7",
  "process_id": 4242,
  "hostname": "build-7",
  "acquired_at": "2026-02-07T10:00:00.123456789Z"
}"#;

    #[test]
    fn a_record_is_written_byte_for_byte_as_it_was_read() {
        // The clock of Windows counts in steps of 100 ns, and so do the instants there.
        let file = if cfg!(windows) {
            FILE.replace("123456789Z", "1234567Z")
        } else {
            FILE.to_owned()
        };
        let data: ResumeLockData = serde_json::from_str(&file).expect("four fields");
        let written = serde_json::to_string_pretty(&data).expect("a record");
        assert_eq!(written, file);
    }

    #[test]
    fn our_extra_key_is_passed_over() {
        let ours = include_str!("../../../tenure-engine/tests/golden/resume/ours.lock");
        let data: ResumeLockData = serde_json::from_str(ours).expect("a record of ours");
        assert_eq!(data.process_id, 4242);
        assert_eq!(instant::utc(&data.acquired_at), "2026-02-07 10:00:00 UTC");
    }

    #[test]
    fn each_of_the_four_fields_is_required() {
        for key in ["job_id", "process_id", "hostname", "acquired_at"] {
            let without = FILE.replace(&format!("\"{key}\""), "\"x\"");
            let read = serde_json::from_str::<ResumeLockData>(&without);
            assert!(read.is_err(), "without {key} it is no record");
        }
    }

    #[test]
    fn new_data_is_of_this_process_and_survives_the_file() {
        let data = ResumeLockData::new("job-1".to_owned());
        assert_eq!(data.process_id, std::process::id());
        assert!(!data.hostname.is_empty(), "a name, or `unknown`");
        let text = serde_json::to_string(&data).expect("a record");
        let read: ResumeLockData = serde_json::from_str(&text).expect("the same record");
        assert_eq!(read, data);
    }
}
