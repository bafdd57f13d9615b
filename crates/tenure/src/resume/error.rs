//! Why a resume lock was not acquired, or is not held any more, in the words that its users know.
//!
//! The core and the store decide which of these it is.

use super::data::ResumeLockData;
use super::instant::{AcquiredAt, utc};
use crate::advice::Advice;
use crate::process::{Identity, liveness};
use crate::profile::why as shown;
use crate::store::StoreError;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use tenure_core::{Claim, Liveness, LockName, NameError, Policy, Process};

/// What went wrong with a resume lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResumeLockError {
    /// Another process holds the lock. Try again later, or override it.
    InProgress {
        /// The session or job.
        job_id: String,
        /// The process that holds it. Of a killed `tenure run` that is the command, which goes on.
        process_id: u32,
        /// The machine on which that process runs.
        hostname: String,
        /// Since when.
        acquired_at: AcquiredAt,
        /// The command that removes the lock, if this process cannot see the holder (which is of another
        /// machine or container). The death of such a holder goes unnoticed here. Of an orphan, the command that ends it.
        override_command: Option<String>,
        /// The `tenure run` that took the lock was killed, and its command goes on.
        is_orphaned: bool,
    },
    /// The calling process holds the lock. The caller should be handed the guard, or
    /// [`again`](super::ResumeLock::again) of it.
    HeldByThisProcess {
        /// The session or job.
        job_id: String,
        /// The calling process.
        process_id: u32,
        /// The present machine.
        hostname: String,
        /// Since when.
        acquired_at: AcquiredAt,
    },
    /// The record cannot be understood, and stayed so for as long as a writer could need to finish
    /// it. Overriding replaces it.
    Unreadable {
        /// The session or job.
        job_id: String,
        /// The record.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The lock was held, and is not held any more.
    Lost {
        /// The session or job.
        job_id: String,
        /// How.
        why: &'static str,
    },
    /// The id cannot be the name of a lock: it has to be a file name that never leaves its folder.
    BadId {
        /// What was given.
        job_id: String,
        /// The rule that the id breaks.
        r#source: NameError,
    },
    /// The folder of the locks cannot be made.
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        r#source: std::io::Error,
    },
    /// The system gives no thread for an async call.
    Thread {
        /// The session or job.
        job_id: String,
        /// Why not.
        r#source: std::io::Error,
    },
    /// The store failed: permissions, a full disk, a network file system.
    Store {
        /// The session or job.
        job_id: String,
        /// How.
        r#source: StoreError,
    },
}

impl Display for ResumeLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress {
                job_id,
                process_id,
                hostname,
                acquired_at,
                override_command,
                is_orphaned,
                ..
            } => write!(
                f,
                "Resume already in progress for job {job_id}\n\
         Lock held by: PID {process_id} on {host} (acquired {since})\n\
         Please wait for the other process to complete, or use --force to override.{far}",
                host = shown(hostname),
                since = utc(acquired_at),
                far = WhatHelps(override_command.as_deref(), *is_orphaned)
            ),
            Self::HeldByThisProcess {
                job_id,
                process_id,
                hostname,
                acquired_at,
                ..
            } => write!(
                f,
                "Resume already in progress for job {job_id}\n\
         Lock held by: PID {process_id} on {host} (acquired {since}), held by this process\n\
         Call `again` on the lock that this process has to enter it once more.",
                host = shown(hostname),
                since = utc(acquired_at)
            ),
            Self::Unreadable {
                job_id, place, why, ..
            } => write!(
                f,
                "Failed to check lock status for {job_id}: {reason} ({place})",
                reason = shown(why)
            ),
            Self::Lost { job_id, why } => write!(f, "The resume lock for {job_id} is lost: {why}"),
            Self::BadId { job_id, source } => write!(
                f,
                "{job_id:?} cannot be the id of a session or job: {source}"
            ),
            Self::CreateFolder { path, source } => write!(
                f,
                "Failed to create locks directory {}: {source}",
                path.display()
            ),
            Self::Thread { job_id, source } => write!(
                f,
                "Failed to start a thread that acquires the lock for {job_id}: {source}"
            ),
            Self::Store { job_id, source } => {
                write!(f, "Failed to reach the lock for {job_id}: {source}")
            }
        }
    }
}

impl std::error::Error for ResumeLockError {}

impl ResumeLockError {
    pub(super) fn from_store(name: &LockName, source: StoreError) -> Self {
        let job_id = name.as_str().to_owned();
        match source {
            StoreError::Unreadable { place, why } => Self::Unreadable { job_id, place, why },
            source => Self::Store { job_id, source },
        }
    }
}

/// The line with the command that helps: against an orphan, or where the process cannot be seen from here.
struct WhatHelps<'a>(Option<&'a str>, bool);

impl Display for WhatHelps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(command) if self.1 => write!(
                f,
                "\nThat is the command of a tenure that was killed, so nothing ends it by itself. This does: {command}"
            ),
            Some(command) => write!(
                f,
                "\nThat is another machine or container, so whether the process still runs \
                 cannot be seen from here. If it does not: {command}"
            ),
            None => Ok(()),
        }
    }
}

/// A refusal, with what is needed to explain it.
pub(super) struct ResumeRefusal<'a> {
    pub(super) name: &'a LockName,
    pub(super) blocker: &'a Claim,
    /// A sign of its life is seen from here.
    pub(super) is_alive: bool,
    /// The command of a run whose supervisor is dead.
    pub(super) orphan: Option<Process>,
    /// Whether the lock is this process's.
    pub(super) is_ours: bool,
    pub(super) here: &'a Identity,
    pub(super) storage: &'a Path,
}

impl ResumeRefusal<'_> {
    pub(super) fn into_error(self) -> ResumeLockError {
        let ResumeLockData {
            job_id,
            process_id,
            hostname,
            acquired_at,
        } = ResumeLockData::of(self.name, self.blocker);
        if self.is_ours {
            return ResumeLockError::HeldByThisProcess {
                job_id,
                process_id,
                hostname,
                acquired_at,
            };
        }
        let advice = Advice::of_folder(Policy::RESUME.name, self.storage, self.name);
        let override_command = if self.orphan.is_some() {
            Some(advice.line(&["cancel", "--orphan"], &[]))
        } else if self.is_out_of_sight() {
            Some(advice.line(&["force-release"], &[]))
        } else {
            None
        };
        ResumeLockError::InProgress {
            job_id,
            process_id: self.orphan.map_or(process_id, |command| command.pid),
            hostname,
            acquired_at,
            override_command,
            is_orphaned: self.orphan.is_some(),
        }
    }

    fn is_out_of_sight(&self) -> bool {
        if self.is_alive {
            return false;
        }
        let holder = &self.blocker.holder;
        holder.process.is_none_or(|process| {
            let seen = liveness(&process, &holder.host, &self.here.host, false);
            seen == Liveness::Unknown
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::instant::of_millis;
    use super::*;

    fn in_progress(hostname: &str, override_command: Option<&str>) -> String {
        ResumeLockError::InProgress {
            job_id: "job-7".to_owned(),
            process_id: 4242,
            hostname: hostname.to_owned(),
            acquired_at: of_millis(1_770_458_400_999),
            override_command: override_command.map(str::to_owned),
            is_orphaned: false,
        }
        .to_string()
    }

    #[test]
    fn a_blocked_resume_says_who_where_since_when_and_what_to_do() {
        assert_eq!(
            in_progress("build-7", None),
            "Resume already in progress for job job-7\n\
             Lock held by: PID 4242 on build-7 (acquired 2026-02-07 10:00:00 UTC)\n\
             Please wait for the other process to complete, or use --force to override."
        );
    }

    #[test]
    fn a_holder_out_of_sight_adds_a_line_with_the_command() {
        let text = in_progress("test-host", Some("tenure x"));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.ends_with("If it does not: tenure x"), "{text}");
    }

    #[test]
    fn what_a_record_says_cannot_drive_a_terminal() {
        let text = in_progress("evil\u{1b}[2J\nhost", None);
        assert!(!text.contains('\u{1b}'), "no escapes: {text:?}");
        assert_eq!(text.lines().count(), 3, "no lines of its own: {text:?}");
    }
}
