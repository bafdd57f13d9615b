//! The folder in which all of it happens, how `tenure` is called there, and what is counted.

use crate::call::Profile;
use crate::clock::{self, Clock};
use crate::journal::Journal;
use crate::preset::Preset;
use crate::versions;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// The file that says so.
const SETTINGS: &str = "tenure.toml";

/// The ttl of locks in etcd.
const ETCD_TTL: &str = "4s";

/// How often which kind of call ended in which way.
pub(crate) type Answers = BTreeMap<String, BTreeMap<String, u64>>;

/// The world of one run.
pub(crate) struct World {
    pub(crate) root: TempDir,
    pub(crate) seed: u64,
    pub(crate) preset: Preset,
    /// The address of the etcd in which locks are kept, where they are.
    store: Option<String>,
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    pub(crate) violations: Mutex<Vec<String>>,
    counts: Mutex<BTreeMap<String, u64>>,
    answers: Mutex<Answers>,
    /// The highest token that an `acquire` of the lock that is overridden has answered.
    pub(crate) overridden_top: AtomicU64,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(crate) fn new(seed: u64, preset: Preset, store: Option<String>) -> std::io::Result<Self> {
        let root = tempfile::Builder::new().prefix("torture.").tempdir()?;
        for folder in [
            "locks", "witness", "roster", "excused", "live", "said", "sprint", "state",
        ] {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(root.path().join(folder))?;
        }
        if preset.is_over_etcd {
            // A killed holder's lease has to run out before the next one comes.
            let settings = format!("[lock.\"*\"]\nttl = \"{ETCD_TTL}\"\n");
            std::fs::write(root.path().join(SETTINGS), settings)?;
        }
        Ok(Self {
            journal: Journal::open(root.path())?,
            clock: Clock::new(root.path())?,
            root,
            seed,
            preset,
            store,
            violations: Mutex::default(),
            counts: Mutex::default(),
            answers: Mutex::default(),
            overridden_top: AtomicU64::new(0),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A program that nothing around the test disturbs.
    pub(crate) fn program_in_our_group(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        match &self.store {
            Some(store) => command
                .env("TENURE_STORE", store)
                .env("TENURE_CONFIG", self.path(SETTINGS)),
            None => command.env("TENURE_DIR", self.path("locks")),
        };
        command
            .env(tenure_os::clock::stepped::STEPS, self.path(clock::FILE))
            .current_dir(self.root.path())
            .stdin(Stdio::null());
        command
    }

    /// A program that nothing around the test disturbs, in a process group of its own.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = self.program_in_our_group(program);
        command.process_group(0);
        command
    }

    pub(crate) fn tenure<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.program(versions::tenure());
        command.args(words);
        command
    }

    /// The words that say which place is meant.
    pub(crate) fn place(&self, profile: Profile) -> Vec<String> {
        let words = |folder: &str, flag: &str, profile: &str| {
            let folder = self.path(folder).display().to_string();
            vec![
                "--profile".to_owned(),
                profile.to_owned(),
                flag.to_owned(),
                folder,
            ]
        };
        match profile {
            Profile::Native => Vec::new(),
            Profile::Sprint => words("sprint", "--project-root", "sprint"),
            Profile::Resume => words("state", "--dir", "resume"),
            Profile::Session => {
                let mut words = words("state", "--dir", "session");
                words.extend(["--stale-after".to_owned(), "5s".to_owned()]);
                words
            }
            Profile::Fleet => words("state", "--dir", "fleet"),
        }
    }

    pub(crate) fn count(&self, what: impl Into<String>) {
        *locked(&self.counts).entry(what.into()).or_default() += 1;
    }

    /// Counts an answer: all of them, and those of one kind of call with one end.
    pub(crate) fn answered(&self, kind: &str, status: ExitStatus) {
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => code.to_string(),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        self.count("calls");
        *locked(&self.answers)
            .entry(kind.to_owned())
            .or_default()
            .entry(end)
            .or_default() += 1;
    }

    /// By kind of call and how it ended.
    pub(crate) fn answers(&self) -> Answers {
        locked(&self.answers).clone()
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        locked(&self.counts).clone()
    }

    /// The violation of a rule.
    pub(crate) fn violation(&self, what: String) {
        self.journal.write(format_args!(
            "violation {}",
            what.lines().next().unwrap_or("")
        ));
        eprintln!("seed {}: {what}", self.seed);
        locked(&self.violations).push(what);
    }

    pub(crate) fn top(&self) -> u64 {
        self.overridden_top.load(Ordering::SeqCst)
    }
}
