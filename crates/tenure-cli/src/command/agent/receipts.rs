//! Remembers what files looked like before an installation, so that its end gives back the same bytes.
//!
//! Receipts are private files in the user's state folder, as settings can have secrets. One lock there lets one
//! installation of a user go on at a time.
//!
//! # Crash safety
//! A receipt is on disk before its file changes. So a changed file always has a receipt; a receipt whose file has
//! not changed yet says what the file is anyhow.

use super::files::{self, make_folder, remove, sync_folder_of};
use crate::exit::Exit;
use crate::failure::Failure;
use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_engine::config::agents_folder;
use tenure_os::clock::{instant, nap, since};
use tenure_os::{os, private, regular};
use tenure_store::printed::hex;

/// How long an installation waits for another one, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// How many texts of one file are remembered as ours.
const TEXTS_MAX: usize = 8;

/// What is known of a file that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    pub(super) file: PathBuf,
    /// Text of the file without tenure; `None` if there was no file.
    pub(super) before: Option<String>,
    /// The checksums of the texts that installations gave it.
    after: Vec<String>,
    /// The folders that were made for it, the outermost first.
    pub(super) folders: Vec<PathBuf>,
}

impl Receipt {
    /// Of a file that is about to have its first text of ours.
    pub(super) fn new(file: &Path, before: Option<String>, folders: Vec<PathBuf>) -> Self {
        Self {
            file: file.to_owned(),
            before,
            after: Vec::new(),
            folders,
        }
    }

    /// Whether an installation wrote this text.
    pub(super) fn knows(&self, text: &str) -> bool {
        self.after.contains(&checksum(text.as_bytes()))
    }

    pub(super) fn add(&mut self, text: &str) {
        let sum = checksum(text.as_bytes());
        if !self.after.contains(&sum) {
            self.after.push(sum);
        }
        let extra = self.after.len().saturating_sub(TEXTS_MAX);
        self.after.drain(..extra);
    }
}

fn checksum(bytes: &[u8]) -> String {
    hex(&Sha256::hash(bytes))
}

/// The folder of the receipts.
#[derive(Debug)]
pub(super) struct Receipts {
    folder: PathBuf,
}

impl Receipts {
    pub(super) fn of_user() -> Result<Self, Failure> {
        Ok(Self {
            folder: agents_folder()?,
        })
    }

    /// The file of another fact beside the receipts.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the folder, and waits until no other installation of this user goes on.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        let above = self.folder.ancestors().filter(|folder| !folder.exists());
        let missing: Vec<_> = above.collect();
        for folder in missing.into_iter().rev() {
            make_folder(folder, 0o700).map_err(|error| files::failed(folder, "made", &error))?;
        }
        let path = self.folder.join("lock");
        let fails = |error: &io::Error| files::failed(&path, "locked", error);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = regular::open(&path, &mut options).map_err(|error| fails(&error))?;
        let begun = instant();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(std::fs::TryLockError::Error(error)) => return Err(fails(&error)),
                Err(std::fs::TryLockError::WouldBlock) if since(begun) > PATIENCE => {
                    return Err(Failure::new(
                        Exit::Precondition,
                        "BUSY",
                        "another installation of this user has been going on for 20 s; nothing was changed",
                    ));
                }
                Err(std::fs::TryLockError::WouldBlock) => nap(PAUSE),
            }
        }
    }

    fn name_of(file: &Path) -> String {
        let sum = checksum(file.as_os_str().as_bytes());
        format!("{}.json", sum.get(..32).unwrap_or_default())
    }

    /// The receipt of a file. One that cannot be read counts as none: the file's own text decides then.
    pub(super) fn of(&self, file: &Path) -> Option<Receipt> {
        let text = files::text_of(&self.folder.join(Self::name_of(file))).ok()??;
        let receipt: Receipt = serde_json::from_str(&text).ok()?;
        (receipt.file == file).then_some(receipt)
    }

    /// Keeps a receipt, or removes the one that there is.
    pub(super) fn keep(&self, file: &Path, receipt: Option<&Receipt>) -> Result<(), Failure> {
        let name = Self::name_of(file);
        let path = self.folder.join(&name);
        let fails = |error: &io::Error| files::failed(&path, "written", error);
        let text = receipt.map(serde_json::to_string).transpose();
        let text = text.map_err(|error| fails(&error.into()))?;
        if files::text_of(&path)? == text {
            return Ok(());
        }
        // What a call left behind that died has this name, too.
        let new = format!(".{name}.tenure-new");
        let done = match &text {
            None => remove(&path),
            Some(text) => os::open_folder(&self.folder)
                .map_err(io::Error::from)
                .and_then(|folder| {
                    let _ = os::remove(&folder, &new);
                    private::replace(&folder, (&new, &name), text.as_bytes(), File::sync_all)
                }),
        };
        done.and_then(|()| sync_folder_of(&path))
            .map_err(|error| fails(&error))
    }
}
