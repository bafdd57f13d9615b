//! Reads on where a reader of an earlier process stopped.

use super::read::{DAYS_FOLLOWED, Events, Filter};
use super::{AuditError, Bookmark, Place};

impl Events {
    /// All events that were written since a bookmark was made. A last line that has no newline yet is left to the next
    /// reader.
    ///
    /// # Errors
    /// - As [`Events::open`].
    pub fn since(place: impl Into<Place>, bookmark: Bookmark) -> Result<Self, AuditError> {
        Self::begin(&place.into(), Filter::default(), Some(bookmark))
    }

    /// Where a reader stopped that has read all events to the end.
    ///
    /// # Errors
    /// - [`AuditError::Io`] if a file cannot be read any more.
    /// - [`AuditError::Unsafe`] if a file was cut meanwhile: what was read of it cannot be told from what was not.
    pub fn bookmark(&self) -> Result<Bookmark, AuditError> {
        let mut bookmark = self.from.clone().unwrap_or_default();
        bookmark.forget_missing();
        for (series, links) in self.links() {
            let path = self.place.dir().join(series);
            for link in links {
                bookmark.note(series, &link.file, link.position.spot(), &path)?;
            }
        }
        if !self.read_days.is_empty() {
            bookmark.forget_days();
        }
        for (name, day) in self.read_days.iter().rev().take(DAYS_FOLLOWED) {
            let folder = match &self.folder {
                Some(top) => top.open_in(name, false)?,
                None => None,
            };
            let files = day.iter();
            let files =
                files.map(|(name, (inode, position))| (name.clone(), *inode, position.spot()));
            bookmark.note_day(name, folder.as_ref(), files)?;
        }
        Ok(bookmark)
    }
}
