//! How far a log was read, for a reader that goes on in a later process.
//!
//! A [`Bookmark`] knows each file by the bytes before the place where its reader stopped, and not by its name or number: a
//! rotation renames, `copytruncate` copies, and a new file may get the number of one that was removed.
//!
//! Writers append. So a file that has the same bytes before the same place goes on there, and every other file
//! is read from its beginning if it is younger than one that is known. An older one that is unknown is a copy, or was
//! there before; none of it is read.
//!
//! # Limitations
//! - What stood only in files that rotation has dropped since is lost.
//! - Of the folders of days, the youngest two and all that come later are read. An event that is dated further back is missed.

use super::folder::{File, Folder, Inode, fault};
use super::{AuditError, span};
use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tenure_os::os::Errno;
use tenure_store::printed::{HASH_DIGITS, hex};

/// How many bytes before a place are compared. Two lines differ in request and instant.
const SEEN_BYTES: u64 = 1 << 10;

/// How many marks of a series are kept whose file was not found: another process may have moved it just then, or this one
/// may not read it at present.
const MISSING_MAX: usize = 16;

/// Where the reader of a log stopped. The default is its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// Of each series, by the name of the file that is written to: its files, oldest first.
    series: BTreeMap<String, Vec<Mark>>,
    /// Of each of the youngest days: its files.
    days: BTreeMap<String, BTreeMap<String, Mark>>,
}

/// Where the next line of a file begins, and whether one goes on there that is too long to be read.
pub(super) type Spot = (u64, bool);

/// Place in a file that is told from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Where the next line begins.
    at: u64,
    /// Hash of the bytes before.
    seen: String,
    /// A line goes on there that is too long to be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    in_line: bool,
}

impl Mark {
    /// The mark of a reader. `None` at the beginning, where nothing can be read twice.
    fn of(file: &File, (at, in_line): Spot, path: &Path) -> Result<Option<Self>, AuditError> {
        if at == 0 {
            return Ok(None);
        }
        let seen = seen_before(file, at).map_err(|errno| fault(path, "reading", errno))?;
        let seen = seen.ok_or_else(|| AuditError::Unsafe {
            place: path.display().to_string(),
            why: "it was cut while it was read".to_owned(),
        })?;
        Ok(Some(Self { at, seen, in_line }))
    }

    /// Whether this file was read up to here.
    fn is_of(&self, file: &File) -> bool {
        file.size >= self.at
            && matches!(seen_before(file, self.at), Ok(Some(seen)) if seen == self.seen)
    }

    fn spot(&self) -> Spot {
        (self.at, self.in_line)
    }
}

/// Hash of the bytes before a place. `None` if the file does not reach it.
fn seen_before(file: &File, at: u64) -> Result<Option<String>, Errno> {
    let from = at.saturating_sub(SEEN_BYTES);
    let bytes = span::read(&file.fd, from, at)?;
    let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| from + length == at);
    let hash = Sha256::hash(&bytes);
    Ok(is_whole.then(|| hex(hash.get(..HASH_DIGITS / 2).unwrap_or_default())))
}

impl Bookmark {
    /// Where the reader of a series stopped in each of its files, which come youngest first. `None` for a file that is to be
    /// read from its beginning. Marks of files that are not there stay.
    pub(super) fn take(&mut self, series: &str, files: &[File]) -> Vec<Option<Spot>> {
        let mut none = Vec::new();
        let marks = self.series.get_mut(series).unwrap_or(&mut none);
        let mut is_behind = false;
        let spot = |file: &File| {
            let known = marks.iter().rposition(|mark| mark.is_of(file));
            let mark = known.map(|known| marks.remove(known));
            let skipped = is_behind.then_some((file.size, false));
            is_behind |= mark.is_some();
            mark.as_ref().map(Mark::spot).or(skipped)
        };
        files.iter().map(spot).collect()
    }

    /// Leaves the files of a series that were not found, the youngest ones.
    pub(super) fn forget_missing(&mut self) {
        for marks in self.series.values_mut() {
            let extra = marks.len().saturating_sub(MISSING_MAX);
            marks.drain(..extra);
        }
        self.series.retain(|_, marks| !marks.is_empty());
    }

    /// Notes where the reader of a series stopped in a file that is younger than those before.
    pub(super) fn note(
        &mut self,
        series: &str,
        file: &File,
        spot: Spot,
        path: &Path,
    ) -> Result<(), AuditError> {
        if let Some(mark) = Mark::of(file, spot, path)? {
            self.series.entry(series.to_owned()).or_default().push(mark);
        }
        Ok(())
    }

    /// Whether a day is younger than those that are read for good.
    pub(super) fn lets_day_pass(&self, day: &str) -> bool {
        let first = self.days.keys().next();
        first.is_none_or(|first| day >= first.as_str())
    }

    /// How far the files of a day were read.
    pub(super) fn of_day(&self, name: &str, folder: &Folder) -> BTreeMap<String, (Inode, Spot)> {
        let marks = self.days.get(name).into_iter().flatten();
        let known = marks.filter_map(|(name, mark)| {
            let file = folder.read(name).ok()??;
            let known = mark.is_of(&file);
            known.then(|| (name.clone(), (file.inode, mark.spot())))
        });
        known.collect()
    }

    /// Forgets the days before.
    pub(super) fn forget_days(&mut self) {
        self.days.clear();
    }

    /// Notes how far the files of a day were read.
    pub(super) fn note_day(
        &mut self,
        name: &str,
        folder: Option<&Folder>,
        files: impl Iterator<Item = (String, Inode, Spot)>,
    ) -> Result<(), AuditError> {
        let marks = self.days.entry(name.to_owned()).or_default();
        let Some(folder) = folder else {
            return Ok(());
        };
        for (name, inode, spot) in files {
            // Removed since: nothing of it is read again.
            let Some(file) = folder.read(&name)?.filter(|file| file.inode == inode) else {
                continue;
            };
            if let Some(mark) = Mark::of(&file, spot, &folder.path_of(&name))? {
                marks.insert(name, mark);
            }
        }
        Ok(())
    }
}
