//! Follows a log: gives every event that is written from now on, once.

use super::bookmark::Bookmark;
use super::entry::Entry;
use super::folder::{File, Folder, Inode};
use super::read::{
    DAYS_FOLLOWED, Day, Events, Filter, Link, Position, Series, Trouble, chains, days, read_day,
};
use super::{AuditError, Place};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tenure_os::os::{self, BorrowedDescriptor, WatchFor};

/// How long to sleep between two looks where the system gives no notices.
const NAP: Duration = Duration::from_millis(200);

/// How long to sleep between two looks where the system gives notices: for what these do not report
/// (a folder that was replaced).
const NAP_WATCHED: Duration = Duration::from_secs(1);

/// Reads what is appended to a log, across rotations, new days and new files.
///
/// A line is shown once it is whole. A line that a crash tore is never shown, and is counted as soon as
/// another line follows.
///
/// # Limitations
/// - If more rotations happen between two looks than files are kept, the events in dropped files are lost.
/// - `copytruncate` copies, and then cuts. What is written between the two is lost to every reader. What
///   was written shortly before may be lost to a follower.
/// - Of the days' folders, the youngest two at the beginning and all that come later are followed.
#[derive(Debug)]
pub struct Follower {
    place: Place,
    filter: Filter,
    trouble: Trouble,
    series: BTreeMap<Series, FollowedSeries>,
    /// How far each day's folder is read; empty for those that are not followed.
    days: BTreeMap<String, Day>,
    followed: Vec<String>,
    watch: Option<Watch>,
    /// Read and not yet given out.
    pending: Vec<Entry>,
}

/// A series that is followed.
#[derive(Debug, Default)]
struct FollowedSeries {
    /// Oldest first. All of them are read as far as they were written at the last look. Writers append to
    /// the last one.
    links: Vec<Link>,
    /// Files that are not part of the series: copies of it, or older than all of it. They are kept open, so
    /// that they are recognised.
    ignored: Vec<File>,
}

impl Events {
    /// Events for [`Events::follow`]: a last line that has no newline yet is left to the follower.
    ///
    /// # Errors
    /// - As [`Events::open`].
    pub fn open_to_follow(place: impl Into<Place>, filter: Filter) -> Result<Self, AuditError> {
        Self::begin(&place.into(), filter, Some(Bookmark::default()))
    }

    /// Goes on from here. What was not yet read comes first.
    pub fn follow(mut self) -> Follower {
        // A reader that has read to the end finds nothing more here.
        let pending: Vec<Entry> = self.by_ref().collect();
        let days = std::mem::take(&mut self.read_days);
        let (place, filter, trouble, series) = self.into_followed();
        let followed = |(series, links)| {
            let ignored = Vec::new();
            (series, FollowedSeries { links, ignored })
        };
        Follower {
            followed: days.keys().rev().take(DAYS_FOLLOWED).cloned().collect(),
            place,
            filter,
            trouble,
            series: series.into_iter().map(followed).collect(),
            days,
            watch: Watch::new(),
            pending,
        }
    }
}

impl Follower {
    /// What was written since the last look, by timestamp.
    ///
    /// # Errors
    /// - [`AuditError::Io`] if the folder cannot be read.
    /// - [`AuditError::Unsafe`] if it cannot be trusted.
    pub fn look(&mut self) -> Result<Vec<Entry>, AuditError> {
        let mut entries = std::mem::take(&mut self.pending);
        // Before anything is read, so that any later change wakes the follower again.
        if let Some(watch) = &mut self.watch {
            watch.settle();
        }
        let Some(folder) = Folder::open(&self.place, false)? else {
            self.read_links(&mut entries);
            return Ok(entries);
        };
        if let Some(watch) = &mut self.watch {
            watch.add(self.place.dir());
        }
        let before = entries.len();
        for (series, files) in chains(&folder, &mut self.trouble) {
            self.series.entry(series).or_default().join(files);
        }
        self.read_links(&mut entries);
        self.read_days(&folder, &mut entries)?;
        if let Some(fresh) = entries.get_mut(before..) {
            fresh.sort_by_key(Entry::at_ms);
        }
        Ok(entries)
    }

    /// How many lines were skipped so far because they are no events.
    pub fn skipped(&self) -> u64 {
        self.trouble.skipped
    }

    /// What could not be read so far, a sentence each, each once.
    pub fn problems(&self) -> &[String] {
        &self.trouble.problems
    }

    /// What to sleep on until the next look (readable when there is a notice), and how long at most.
    pub fn notices(&self) -> (Option<BorrowedDescriptor<'_>>, Duration) {
        match &self.watch {
            Some(watch) if watch.is_set() => (Some(watch.fd()), NAP_WATCHED),
            _ => (None, NAP),
        }
    }

    fn read_links(&mut self, entries: &mut Vec<Entry>) {
        for ((_, file), followed) in &mut self.series {
            let place = self.place.dir().join(file);
            for link in &mut followed.links {
                if let Ok(size) = link.file.size_now() {
                    link.position.look_for_cut(size);
                }
                let (position, trouble) = (&mut link.position, &mut self.trouble);
                while let Some(entry) =
                    trouble.next_of(position, &link.file.fd, &place, &self.filter)
                {
                    entries.push(entry);
                }
            }
        }
    }

    fn read_days(&mut self, folder: &Folder, entries: &mut Vec<Entry>) -> Result<(), AuditError> {
        for name in days(folder)? {
            if !self.days.contains_key(&name) {
                self.days.insert(name.clone(), Day::new());
                self.followed.push(name);
            }
        }
        for name in &self.followed {
            let opened = match folder.open_in(name, false) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                Err(error) => {
                    self.trouble.report(&error);
                    continue;
                }
            };
            if let Some(watch) = &mut self.watch {
                watch.add(&self.place.dir().join(name));
            }
            if let Some(day) = self.days.get_mut(name) {
                let lines = read_day(&opened, day, false, &self.filter, &mut self.trouble);
                let events = lines.iter().filter_map(|line| self.trouble.event_of(line));
                entries.extend(events);
            }
        }
        Ok(())
    }
}

impl FollowedSeries {
    /// Takes up files that are new since the last look, and closes those that were dropped at
    /// the look before. They come youngest first.
    fn join(&mut self, files: Vec<File>) {
        let is_there = |inode: Inode| files.iter().any(|file| file.inode == inode);
        let current = self.links.pop();
        self.links.retain(|link| is_there(link.file.inode));
        self.links.extend(current);
        self.ignored.retain(|file| is_there(file.inode));
        let current = self.links.last().map(|link| link.file.inode);
        // Every file behind the one that was being read is older, or a copy of it. While that file is still
        // the youngest, every other file is behind it.
        let mut is_behind = files.first().map(|file| file.inode) == current;
        let mut fresh = Vec::new();
        for file in files {
            is_behind |= Some(file.inode) == current;
            if self.links.iter().any(|link| link.file.inode == file.inode)
                || self.ignored.iter().any(|known| known.inode == file.inode)
            {
                continue;
            }
            if is_behind {
                self.ignored.push(file);
            } else {
                fresh.push(Link {
                    file,
                    position: Position::default(),
                });
            }
        }
        self.links.extend(fresh.into_iter().rev());
    }
}

/// Wakes a reader that sleeps on it when something in a folder changes. A look at the folder shows what has
/// changed.
#[derive(Debug)]
struct Watch {
    watch: os::Watch,
    is_set: bool,
}

impl Watch {
    /// `None` where the system gives no more of them, or has none.
    fn new() -> Option<Self> {
        let watch = os::Watch::new().ok()?;
        Some(Self {
            watch,
            is_set: false,
        })
    }

    /// Watches a folder; one that is watched already stays so.
    fn add(&mut self, path: &Path) {
        self.is_set = self.watch.add(path, WatchFor::Files).is_ok();
    }

    /// Forgets what woke the reader.
    fn settle(&mut self) {
        self.watch.settle();
        self.is_set = false;
    }

    fn fd(&self) -> BorrowedDescriptor<'_> {
        self.watch.descriptor()
    }

    fn is_set(&self) -> bool {
        self.is_set
    }
}
