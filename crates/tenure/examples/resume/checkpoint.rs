//! The checkpoint: how far a job is. Saved as a whole or not at all.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// How far a job is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Everything that is to be done, in order.
    items: Vec<String>,
    /// How many of them are done.
    pub(crate) done: usize,
    /// How long the output was when the last of them was done.
    pub(crate) output_bytes: u64,
}

impl Checkpoint {
    /// A job of which nothing is done.
    pub(crate) fn of(items: Vec<String>) -> Self {
        Self {
            items,
            done: 0,
            output_bytes: 0,
        }
    }

    pub(crate) fn exists(dir: &Path, id: &str) -> bool {
        path(dir, id).exists()
    }

    pub(crate) fn load(dir: &Path, id: &str) -> Result<Self, Failure> {
        let path = path(dir, id);
        let failed = |why: String| Failure::File(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    /// Replaces the checkpoint: written beside it, brought to the disk, then renamed over it. A
    /// kill at any instant leaves the old one or the new one. A process that lost the lock to a forced
    /// one may be in here as well, before it hears of it: so each process has a file of its own.
    pub(crate) fn save(&self, dir: &Path, id: &str) -> Result<(), Failure> {
        let path = path(dir, id);
        let failed = |why: String| Failure::File(format!("{}: {why}", path.display()));
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.to_string()))?;
        let written = NamedTempFile::new_in(dir).and_then(|mut fresh| {
            fresh.write_all(text.as_bytes())?;
            fresh.as_file().sync_all()?;
            fresh.persist(&path)?;
            Ok(())
        });
        written.map_err(|error| failed(error.to_string()))
    }

    pub(crate) fn next_item(&self) -> Option<&str> {
        self.items.get(self.done).map(String::as_str)
    }

    pub(crate) fn progress(&self) -> String {
        format!("{} of {} items done", self.done, self.items.len())
    }
}

fn path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.json"))
}
