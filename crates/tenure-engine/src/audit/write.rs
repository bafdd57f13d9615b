//! Appending events: one line, one write, to a file that is still there.

use super::folder::{File, Folder, fault};
use super::span::Span;
use super::stream::Stream;
use super::{AuditError, AuditLog, PATIENCE_AMONG_OTHERS, Record};
use std::time::{Duration, Instant};
use tenure_os::clock::{instant, nap};
use tenure_os::os::{self, Errno, uninterrupted};

/// The first and the longest pause between two tries for the file, which is held for
/// microseconds.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// How often the file may be moved away before a writer gives up. No rotation does that so often.
const TRIES_MAX: u32 = 1_000;

/// Whether other writers keep away from the file during a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exclusion {
    Held,
    /// Another process keeps it and does not move on, or the file system has no locks. The line is written
    /// all the same, and nothing else is done.
    None,
}

impl AuditLog {
    /// Appends an event.
    ///
    /// The file is opened anew for every event, so a program that renames it (logrotate) is followed at
    /// once. It is locked (`flock`) for the instant of writing. It is written to only while its name still
    /// leads to it.
    ///
    /// # Errors
    /// - [`AuditError::Io`] if the system refuses.
    /// - [`AuditError::Unsafe`] if the folder or the file cannot be trusted.
    ///
    /// # Crash safety
    /// Whole lines are promised only to readers that skip a line which is not whole; the disk may have
    /// others:
    /// - *Killed before the write*: nothing is there, or an empty file.
    /// - *Killed inside the write, or the disk is full*: the line may be torn. Lines are written under the
    ///   lock, so the next writer sees a last byte that is no newline. It begins, in the same write, with a
    ///   newline: the torn line stays alone.
    /// - *Killed while rotating*: the files are renamed from the oldest on and `audit.jsonl` last. A gap in
    ///   the numbers remains; the next rotation fills it and drops nothing for it.
    /// - *Power loss*: nothing is synced, so the last events may be missing.
    ///
    /// A writer waits for up to a tenth of a second for a process that was stopped under the lock. Then it appends the
    /// line without the lock, in one write that begins with a newline. Appending writes do not mix, so
    /// nothing is lost by that, and no rotation is begun.
    pub fn append(&self, record: &Record) -> Result<(), AuditError> {
        self.append_since(record, instant())
    }

    /// Appends one of several events, whose writer has waited for the file since then: all of them wait no longer than one.
    ///
    /// # Errors
    /// - As [`Self::append`].
    pub fn append_since(&self, record: &Record, began: Instant) -> Result<(), AuditError> {
        self.append_as(record, Some(began)).map(|_| ())
    }

    /// Appends an event if no other process keeps the file at this instant. Answers whether that was done.
    ///
    /// # Errors
    /// - As [`Self::append`].
    pub fn try_append(&self, record: &Record) -> Result<bool, AuditError> {
        self.append_as(record, None)
    }

    /// Appends an event whose wait for the file began then; without a beginning, only where that takes no wait.
    fn append_as(&self, record: &Record, began: Option<Instant>) -> Result<bool, AuditError> {
        let stream = (!self.is_of_request(record)).then(|| record.stream());
        let gone = || {
            fault(
                &self.path_of(record),
                "appending: the file is taken away again and again",
                Errno::NOENT,
            )
        };
        // A single patience for all tries: a file that is moved away while another process keeps it costs no more time.
        let place = self.place.settled();
        for _ in 0..TRIES_MAX {
            let Some(top) = Folder::open(&place, true)? else {
                continue;
            };
            let patience = match top.user() {
                Some(_) => self.patience.min(PATIENCE_AMONG_OTHERS),
                None => self.patience,
            };
            let (folder, name) = match stream {
                Some(stream) => {
                    let name = stream.file(top.user());
                    (top, name)
                }
                None => match top.open_in(record.date(), true)? {
                    Some(folder) => (folder, record.file_name()),
                    None => continue,
                },
            };
            let Some(file) = folder.append(&name)? else {
                continue;
            };
            let guard = lock(&file, began.and_then(|began| began.checked_add(patience)));
            if guard == Exclusion::None && began.is_none() {
                return Ok(false);
            }
            let done = self.append_to(&folder, &name, &file, guard, (record, stream));
            if guard == Exclusion::Held {
                // An explicit unlock: a copy of the descriptor in a child that was just forked would keep
                // the lock until that child becomes its command.
                let _ = os::unlock_file(&file.fd);
            }
            if done? {
                return Ok(true);
            }
        }
        Err(gone())
    }

    /// Writes the line. Answers `false` if it has to be written to another file: this one was moved away,
    /// or was full and has just been rotated.
    fn append_to(
        &self,
        folder: &Folder,
        name: &str,
        file: &File,
        guard: Exclusion,
        (record, stream): (&Record, Option<Stream>),
    ) -> Result<bool, AuditError> {
        let Some(size) = folder.size_at(name, file)? else {
            return Ok(false);
        };
        let failed = |errno| fault(&folder.path_of(name), "appending to the audit", errno);
        let full = stream.is_some_and(|stream| size > 0 && size >= self.bytes_of(stream));
        if full && guard == Exclusion::Held && self.rotate(folder, name).is_ok() {
            return Ok(false);
        }
        let torn = match guard {
            Exclusion::None => true,
            Exclusion::Held => ends_torn(file, size).map_err(failed)?,
        };
        let mut line = record.line();
        // A file of a request holds events of one day.
        if stream.is_some() && guard == Exclusion::Held {
            let at = size + u64::from(torn);
            if let Some(span) = Span::ending_with(&file.fd, at, &line) {
                line = record.ending(span).line();
            }
        }
        if torn {
            line.insert(0, '\n');
        }
        let mut rest = line.as_bytes();
        // A single write takes all of it, unless the disk is full. Then the rest fails too, and the next
        // writer closes the torn line.
        while !rest.is_empty() {
            let written = uninterrupted(|| os::write(&file.fd, rest)).map_err(failed)?;
            if written == 0 {
                return Err(failed(Errno::IO));
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(true)
    }

    /// Moves `audit.jsonl` to `audit.jsonl.1`, and each file there one further, up to the first gap;
    /// without a gap the oldest is dropped. Called with the lock of the file held and its name checked, so
    /// no other process of tenure rotates. `audit.jsonl` goes last, and until then every other writer finds
    /// the same locked file. So it is with each stream.
    fn rotate(&self, folder: &Folder, file: &str) -> Result<(), Errno> {
        let fd = folder.fd();
        let place = |number: u32| match number {
            0 => file.to_owned(),
            number => format!("{file}.{number}"),
        };
        let is_free = |number: &u32| os::facts_at(fd, place(*number)).err() == Some(Errno::NOENT);
        let gap = (1..=self.kept).find(is_free);
        for number in (0..gap.unwrap_or(self.kept)).rev() {
            let (from, to) = (place(number), place(number + 1));
            if gap.is_none() && number + 1 == self.kept {
                // The one place where events are dropped: the oldest, as the limit says.
                if !os::REPLACES_OPEN_FILES {
                    match os::remove(fd, &to) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                os::rename(fd, &from, fd, &to)?;
            } else {
                match os::rename_new(fd, &from, fd, &to) {
                    Err(Errno::INVAL | Errno::NOSYS) => os::rename(fd, &from, fd, &to)?,
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

/// Takes the file's lock, within bounds.
fn lock(file: &File, until: Option<Instant>) -> Exclusion {
    let mut pause = PAUSE_MIN;
    loop {
        match os::try_lock_file(&file.fd) {
            Ok(true) => return Exclusion::Held,
            Err(Errno::INTR) => {}
            Ok(false) if until.is_some_and(|until| instant() < until) => {
                nap(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Ok(false) | Err(_) => return Exclusion::None,
        }
    }
}

/// Whether the file ends in the middle of a line.
fn ends_torn(file: &File, size: u64) -> Result<bool, Errno> {
    let Some(last) = size.checked_sub(1) else {
        return Ok(false);
    };
    let mut byte = [0];
    let length = uninterrupted(|| os::read_at(&file.fd, &mut byte, last))?;
    // Nothing is there: the file was truncated meanwhile, and this write begins it.
    Ok(length == 1 && byte != [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::super::{Events, Filter, Occasion};
    use super::super::{FILE, Layout};
    use super::*;
    use tenure_core::{LockName, RequestId};

    fn record(token: u64) -> Record {
        let lock = LockName::new("deploy").expect("a name");
        let request_id = RequestId::new("req_1").expect("an id");
        let occasion = Occasion::new(&lock, &request_id, 1_770_458_400_000 + token);
        Record::lock_acquired(occasion, "/l".as_ref(), Duration::from_secs(1), token)
    }

    fn tokens(log: &AuditLog) -> Vec<u64> {
        let events = Events::open(log.dir(), Filter::default()).expect("a log");
        let token = |entry: super::super::Entry| entry.fields().get("token")?.as_u64();
        events.filter_map(token).collect()
    }

    #[test]
    fn a_writer_that_was_stopped_under_the_lock_keeps_no_event_out_for_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = AuditLog::new(folder.path().join("audit"), Layout::OneFile).rotating(1, 3);
        log.append(&record(1)).expect("the first event");
        let stopped = std::fs::File::open(log.dir().join(FILE)).expect("the file");
        assert!(os::try_lock_file(&stopped).expect("the lock"));
        log.patience = Duration::from_millis(20);
        log.append(&record(2))
            .expect("the event of a writer that waits in vain");
        assert_eq!(tokens(&log), [1, 2], "it is there all the same");
        assert!(
            !log.try_append(&record(9))
                .expect("no event, and no failure")
        );
        assert_eq!(tokens(&log), [1, 2]);
        assert!(
            !log.dir().join("audit.jsonl.1").exists(),
            "and nothing was rotated while the other kept the file"
        );
        drop(stopped);
        assert!(log.try_append(&record(3)).expect("the next event"));
        assert_eq!(tokens(&log), [1, 2, 3]);
    }

    #[test]
    fn a_rotation_that_a_crash_ended_halfway_costs_no_older_events() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::new(folder.path().join("audit"), Layout::OneFile).rotating(1, 3);
        for token in 1..=4 {
            log.append(&record(token)).expect("an event");
        }
        assert_eq!(
            tokens(&log),
            [1, 2, 3, 4],
            "three rotated files and the current one"
        );
        // Killed after the first renames: .3 made room, .2 and .1 moved up, the current one is left.
        let place = |number: u32| log.dir().join(format!("{FILE}.{number}"));
        std::fs::rename(place(2), place(3)).expect("the first step");
        std::fs::rename(place(1), place(2)).expect("the second step");
        log.append(&record(5)).expect("an event after the crash");
        assert_eq!(
            tokens(&log),
            [2, 3, 4, 5],
            "only what the limit says was dropped"
        );
    }

    #[test]
    fn a_rotation_that_fails_loses_no_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::new(folder.path().join("audit"), Layout::OneFile).rotating(1, 1);
        log.append(&record(1)).expect("an event");
        // A folder in place of the rotated file: it cannot be replaced by a file.
        std::fs::create_dir(log.dir().join("audit.jsonl.1")).expect("an obstacle");
        log.append(&record(2))
            .expect("the event is written to the file that is too large");
        assert_eq!(tokens(&log), [1, 2]);
    }
}
