//! What errors say: the whole reason in one sentence, and nothing of it again in their source.
//!
//! A program that prints `{error}` shows the whole reason. A program that prints the chain of sources
//! (as anyhow's `{:#}` does) shows it once.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use tenure::fence::GuardError;
use tenure::guard::{AcquireError, LockName, NameError, OpenError, ReleaseError, VerifyError};
use tenure::resume::ResumeLockError;
use tenure::store::StoreError;
use tenure_engine::audit::AuditError;
use tenure_engine::config::ConfigError;
use tenure_engine::duration::{self, DurationError};
use tenure_engine::intent::IntentError;

/// The cause of every error here.
const CAUSE: &str = "the cause of it all";

fn cause() -> io::Error {
    io::Error::other(CAUSE)
}

fn store() -> StoreError {
    StoreError::Io {
        place: "/locks/a".to_owned(),
        doing: "reading the lock",
        source: cause(),
    }
}

fn name() -> LockName {
    LockName::new("a").expect("a name")
}

fn bad_name() -> NameError {
    LockName::new("../a").expect_err("no name")
}

fn bad_duration() -> DurationError {
    duration::parse("soon").expect_err("no duration")
}

fn read() -> ConfigError {
    ConfigError::Read {
        path: "tenure.toml".to_owned(),
        source: cause(),
    }
}

type Case = (Box<dyn Error>, String);

/// Every error of ours that contains another one, and the text of the innermost.
fn cases() -> Vec<Case> {
    let io: Vec<Box<dyn Error>> = vec![
        Box::new(store()),
        Box::new(tenure_engine::engine::AcquireError::from(store())),
        Box::new(OpenError::Folder { source: cause() }),
        Box::new(OpenError::Servers { source: store() }),
        Box::new(OpenError::from(read())),
        Box::new(AcquireError::Thread {
            name: name(),
            source: cause(),
        }),
        Box::new(AcquireError::Store {
            name: name(),
            source: store(),
        }),
        Box::new(ReleaseError::Store {
            name: name(),
            source: store(),
        }),
        Box::new(VerifyError::Store {
            name: name(),
            source: store(),
        }),
        Box::new(read()),
        Box::new(AuditError::Io {
            place: "/audit".to_owned(),
            doing: "writing",
            source: cause(),
        }),
        Box::new(GuardError::Io {
            place: "/mark".to_owned(),
            doing: "reading",
            source: cause(),
        }),
        Box::new(ResumeLockError::CreateFolder {
            path: PathBuf::from("/locks"),
            source: cause(),
        }),
        Box::new(ResumeLockError::Thread {
            job_id: "a".to_owned(),
            source: cause(),
        }),
        Box::new(ResumeLockError::Store {
            job_id: "a".to_owned(),
            source: store(),
        }),
        #[cfg(feature = "etcd")]
        Box::new(tenure::store::etcd::CredentialsError::File {
            variable: "TENURE_ETCD_KEY",
            path: PathBuf::from("/key"),
            source: cause(),
        }),
    ];
    let durations: Vec<Box<dyn Error>> = vec![Box::new(IntentError::Ttl {
        source: bad_duration(),
    })];
    let names: Vec<Box<dyn Error>> = vec![
        Box::new(AcquireError::Name {
            name: "../a".to_owned(),
            source: bad_name(),
        }),
        Box::new(ResumeLockError::BadId {
            job_id: "../a".to_owned(),
            source: bad_name(),
        }),
    ];
    let of = |errors: Vec<Box<dyn Error>>, cause: String| {
        errors.into_iter().map(move |error| (error, cause.clone()))
    };
    of(io, CAUSE.to_owned())
        .chain(of(durations, bad_duration().to_string()))
        .chain(of(names, bad_name().to_string()))
        .collect()
}

#[test]
fn an_error_says_its_whole_reason_once() {
    for (error, cause) in cases() {
        let said = error.to_string();
        assert!(said.contains(&cause), "{said:?} leaves out {cause:?}");
        // As anyhow's `{:#}` prints it.
        let mut chain = said.clone();
        let mut source = error.source();
        while let Some(error) = source {
            chain = format!("{chain}: {error}");
            source = error.source();
        }
        assert_eq!(chain.matches(&cause).count(), 1, "{chain}");
    }
}

/// The errors above are all that there are: this fails for the author of the next one.
#[test]
fn no_error_both_says_its_source_and_names_it() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    // What a program can see. The binary's own errors end as exit codes, and nobody asks them for a source.
    for entry in std::fs::read_dir(ours.join("..")).expect("the crates") {
        let path = entry.expect("an entry").path();
        if !path.ends_with("tenure-cli") {
            rust_files(&path.join("src"), &mut files);
        }
    }
    assert!(files.len() > 150, "the sources are where they were");
    let (mut found, mut written) = (0, 0);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        // An error whose sentences are written by hand has no source of its own: at most it passes on another error's.
        for implemented in text.split("Error for ").skip(1) {
            let body = implemented.split("\n}").next().unwrap_or_default();
            let body = body
                .lines()
                .next()
                .filter(|line| line.ends_with("{}"))
                .unwrap_or(body);
            written += 1;
            assert!(!body.contains("Some("), "{}: {body}", file.display());
        }
        for (number, variant) in text.split("#[error(").skip(1).enumerate() {
            let (message, rest) = variant.split_once(")]").unwrap_or((variant, ""));
            let fields = rest.split("\n}").next().unwrap_or_default();
            found += 1;
            if message.trim() == "transparent" {
                continue;
            }
            let named = fields.lines().map(str::trim).find(|line| {
                line.starts_with("source: ")
                    || line.contains("#[source]")
                    || line.contains("#[from]")
            });
            assert_eq!(
                named,
                None,
                "{}, message {number} ({message}): write r#source, see docs/internals/decisions/0017",
                file.display()
            );
        }
    }
    assert!(found > 20, "{found} messages");
    assert!(written > 15, "{written} errors written by hand");
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
