//! What the tests of the four published formats share: their paths, the words of their calls, and
//! records as other programs write them.
#![allow(
    dead_code,
    reason = "each of the tests that include this uses its own part"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the test plays know nothing of the store and its clock"
)]

use crate::support_crash::{Process, Site, word};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The four formats that other programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Sprint,
    Resume,
    Session,
    Fleet,
}

/// All of them.
pub(crate) const ALL: [Format; 4] = [
    Format::Sprint,
    Format::Resume,
    Format::Session,
    Format::Fleet,
];

/// A record of another program.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) id: String,
    pub(crate) pid: u32,
    pub(crate) ago: Duration,
}

impl Format {
    pub(crate) fn profile(self) -> &'static str {
        match self {
            Self::Sprint => "sprint",
            Self::Resume => "resume",
            Self::Session => "session",
            Self::Fleet => "fleet",
        }
    }

    /// The lock's name.
    pub(crate) fn lock(self) -> &'static str {
        match self {
            Self::Sprint => "sprint",
            Self::Resume => "job-1",
            Self::Session => "42",
            Self::Fleet => "app-prod",
        }
    }

    /// What the format calls its storage.
    pub(crate) fn place(self, site: &Site) -> PathBuf {
        site.path(self.profile())
    }

    /// The folder in which the record stands.
    pub(crate) fn folder(self, site: &Site) -> PathBuf {
        match self {
            Self::Sprint | Self::Fleet => self.place(site),
            Self::Resume => self.place(site).join("resume_locks"),
            Self::Session => self.place(site).join("locks"),
        }
    }

    pub(crate) fn record(self, site: &Site) -> PathBuf {
        self.folder(site).join(match self {
            Self::Sprint => ".sprint-running",
            Self::Resume => "job-1.lock",
            Self::Session => "42.lock",
            Self::Fleet => "app-prod.lock",
        })
    }

    /// Makes the folder, as another program would have.
    pub(crate) fn prepare(self, site: &Site) {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.folder(site))
            .expect("a folder");
    }

    /// `tenure --profile P VERB NAME --dir DIR` and what the format wants to know.
    pub(crate) fn words(self, site: &Site, verb: &str, more: &[&str]) -> Vec<String> {
        let place = self.place(site);
        let root = if self == Self::Sprint {
            "--project-root"
        } else {
            "--dir"
        };
        let mut words = vec!["--profile", self.profile(), verb, self.lock()];
        words.extend([root, word(&place)]);
        if matches!(verb, "acquire" | "run") {
            words.extend(match self {
                Self::Fleet => &["--intent-name", "x", "--intent-version", "1"][..],
                Self::Sprint => &["--epic-spec", "epic5"][..],
                Self::Resume | Self::Session => &[],
            });
        }
        words.extend(more);
        words.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn start(self, site: &Site, verb: &str, more: &[&str]) -> Process {
        let words = self.words(site, verb, more);
        Process::start(site.tenure(words.iter().map(String::as_str)))
    }

    /// What a caller says who wants a stale lock.
    pub(crate) fn insisting(self) -> &'static [&'static str] {
        match self {
            Self::Sprint => &["--force"],
            Self::Fleet => &["--force-lock"],
            Self::Resume | Self::Session => &[],
        }
    }

    /// A record, as the original program of the format writes it.
    pub(crate) fn text(self, foreign: &Foreign) -> String {
        let at = time(SystemTime::now() - foreign.ago);
        let Foreign { id, pid, .. } = foreign;
        match self {
            Self::Sprint => format!(
                "pid: {pid}\nsession_id: {id}\nstarted_at: \"{at}\"\nepic_spec: epic5\n\
                 lock_version: 1\n"
            ),
            Self::Resume => format!(
                "{{\n  \"job_id\": \"job-1\",\n  \"process_id\": {pid},\n  \"hostname\": \"{}\",\n  \
                 \"acquired_at\": \"{at}\"\n}}",
                host()
            ),
            Self::Session => format!(
                "{{\n  \"issueNumber\": 42,\n  \"runId\": \"{id}\",\n  \"acquiredAt\": \"{at}\",\n  \
                 \"pid\": {pid}\n}}\n"
            ),
            Self::Fleet => format!(
                "{{\"lock_version\":\"v1\",\"lock_name\":\"app-prod\",\"request_id\":\"{id}\",\
                 \"actor\":\"alice\",\"intent\":\"deploy\",\"intent_version\":\"1.0.0\",\
                 \"host_id\":\"fleet-3\",\"pid\":{pid},\"created_at\":\"{at}\",\
                 \"last_heartbeat_at\":\"{at}\",\"ttl_seconds\":900}}\n"
            ),
        }
    }

    /// A record that is stale by the format's rule.
    pub(crate) fn stale(self) -> String {
        let live = std::process::id();
        let (pid, minutes) = match self {
            Self::Sprint | Self::Resume => (dead_pid(), 0),
            Self::Session => (live, 11),
            Self::Fleet => (live, 16),
        };
        self.text(&Foreign {
            id: "theirs-1".to_owned(),
            pid,
            ago: Duration::from_secs(60 * minutes),
        })
    }

    /// A record that is alive by the format's rule.
    pub(crate) fn live(self) -> String {
        self.text(&Foreign {
            id: "theirs-1".to_owned(),
            pid: std::process::id(),
            ago: Duration::ZERO,
        })
    }

    /// Whether the binary can write this format's records at all.
    pub(crate) fn is_served(self) -> bool {
        let site = Site::new();
        self.prepare(&site);
        let owner = std::process::id().to_string();
        let answer = self
            .start(
                &site,
                "acquire",
                &["--owner", &owner, "--request-id", "probe-1"],
            )
            .answer()
            .expect("an answer");
        if !answer.is(0) {
            println!("{self:?} is skipped, it cannot be acquired yet: {answer}");
        }
        answer.is(0)
    }
}

/// A file as it stands: its bytes, which file it is, and when it was written.
pub(crate) fn seen(path: &std::path::Path) -> Option<(Vec<u8>, u64, i64, i64)> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let bytes = std::fs::read(path).ok()?;
    Some((bytes, meta.ino(), meta.mtime(), meta.mtime_nsec()))
}

/// Puts a record to the path in one step, over whatever is there.
pub(crate) fn plant(format: Format, site: &Site, text: &str) {
    let new = site.path("foreign.new");
    std::fs::write(&new, text).expect("a private file");
    std::fs::rename(new, format.record(site)).expect("a record");
}

/// An instant as all four formats accept it.
pub(crate) fn time(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).expect("a date");
    let seconds = i64::try_from(since.as_secs()).expect("a date of ours");
    jiff::Timestamp::from_second(seconds)
        .expect("a date of ours")
        .to_string()
}

/// The present host, as records name it.
pub(crate) fn host() -> String {
    tenure_os::process::Identity::current().host.name
}

/// The number of a process that has ended.
pub(crate) fn dead_pid() -> u32 {
    let mut child = std::process::Command::new("true")
        .spawn()
        .expect("a process");
    child.wait().expect("its end");
    child.id()
}
