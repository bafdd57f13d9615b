//! The published record: the file at the path where other programs of its system look. Three changes are
//! made to it. None of them ever overwrites or removes what another program put there.
//!
//! All of them happen under the guard of the lock's coordination file, so two callers of ours are never
//! here at once. Other programs know nothing of the guard. Against them:
//! - **create** renames a whole private file to the path with `RENAME_NOREPLACE`: if anything stands
//!   there, it fails. It excludes programs that create by `O_EXCL`, `link` or a rename that does not
//!   replace, and they exclude it;
//! - **replace** exchanges a whole private file with what stands at the path, then looks at what came
//!   out. If that is not the record that was judged, it is exchanged back;
//! - **remove** renames the record to a private name and looks at it. If it is not the record that was
//!   meant, it is put back, again without replacing.
//!
//! Where the system cannot exchange two files in one step (Windows, [`os::EXCHANGES`]), a replacement
//! takes two. The record is renamed to a private name and looked at, as in a removal. Then the new one
//! is renamed to its path without replacing. For the instant between, nothing stands there. A program
//! that creates its own record then has come first, and its record stays. Our own readers recognise that
//! instant by the private file that waits to go in, and look again.
//!
//! A danger remains: the instant between an exchange and its way back. A program that unlinks without
//! looking, or renames over the path, can then remove the wrong record. `docs/deviations.md` says so.
//!
//! # Crash safety
//! Readers see a whole record or none at every instant, because a file gets its name only after it is
//! written. Death before the rename leaves a private file, which the next change under the guard
//! overwrites. Death after it leaves the record as it is meant to be. Death between an exchange and the
//! look at what came out leaves the new record in force. The old one stands under the private name,
//! where the next change removes it.

use super::folder::{Folder, fault};
use crate::StoreError;
use std::time::Duration;
use tenure_os::os::{self, Descriptor, Errno, Open};
use tenure_os::trust::{self, Distrust};

/// The largest record that is read. A larger one is no record of any format.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// How often two files are exchanged before the change fails: once, and then back again and again.
const EXCHANGES_MAX: usize = 16;

const REPLACING: &str = "replacing the record";

/// A record as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    /// Bytes of the record.
    pub(super) bytes: Vec<u8>,
    /// The file, by its inode.
    inode: (u64, u64),
    /// When it was written last, in milliseconds since the epoch.
    pub(super) modified_ms: u64,
    /// Whether the record has more bytes than any record may have, so not all of them were read.
    pub(super) is_too_long: bool,
}

impl Published {
    fn is(&self, other: &Self) -> bool {
        self.inode == other.inode && self.bytes == other.bytes
    }

    /// A record of these bytes, for tests.
    #[cfg(test)]
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            inode: (0, 0),
            modified_ms: 0,
            is_too_long: false,
        }
    }
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Change {
    /// The change was made.
    Done,
    /// Another program changed the record first; its record stands, and we changed nothing.
    Overtaken,
}

/// The path of one lock's record, and the private folder beside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publication<'a> {
    /// The folder in which the record stands.
    pub(super) records: &'a Folder,
    /// The folder for private files, on the same file system.
    pub(super) private: &'a Folder,
    /// The record's file name.
    pub(super) file: &'a str,
    /// Each change is on the disk before it counts as made.
    pub(super) durable: bool,
}

impl Publication<'_> {
    /// Reads the record at the path.
    pub(super) fn read(&self) -> Result<Option<Published>, StoreError> {
        read_at(self.records, self.file)
    }

    /// How long ago the record was written, in milliseconds, by the clock that dates the files there. Another file is
    /// written for that, under the guard. `None` if it cannot be.
    pub(super) fn written_ago_ms(&self, published: &Published) -> Option<u64> {
        let fresh = self.write_private(b"\n").ok()?;
        let now = read_at(self.private, &fresh);
        self.drop_private(&fresh);
        Some(now.ok()??.modified_ms.saturating_sub(published.modified_ms))
    }

    /// Creates the record, if nothing stands at the path.
    pub(super) fn create(&self, bytes: &[u8]) -> Result<Change, StoreError> {
        self.lasting(self.create_private(bytes)?)
    }

    fn create_private(&self, bytes: &[u8]) -> Result<Change, StoreError> {
        let fresh = self.write_private(bytes)?;
        match self.rename_without_replacing(&fresh, self.private, self.file, self.records) {
            Ok(()) => Ok(Change::Done),
            Err(Errno::EXIST) => {
                self.drop_private(&fresh);
                Ok(Change::Overtaken)
            }
            Err(errno) => {
                self.drop_private(&fresh);
                Err(self.failed("creating the record", errno))
            }
        }
    }

    /// Replaces the record that was judged, and no other.
    pub(super) fn replace(&self, judged: &Published, bytes: &[u8]) -> Result<Change, StoreError> {
        let change = if os::EXCHANGES {
            self.replace_by_exchange(judged, bytes)
        } else {
            self.replace_in_two_steps(judged, bytes)
        };
        self.lasting(change?)
    }

    /// Waits until a change that was made is on the disk, if it has to last.
    fn lasting(&self, change: Change) -> Result<Change, StoreError> {
        if self.durable && change == Change::Done {
            let synced = self.records.sync();
            synced.map_err(|errno| self.failed("making the record last", errno))?;
        }
        Ok(change)
    }

    fn replace_in_two_steps(&self, judged: &Published, bytes: &[u8]) -> Result<Change, StoreError> {
        let fresh = self.write_private(bytes)?;
        let away = match self.take_away(judged) {
            Ok(Some(away)) => away,
            other => {
                self.drop_private(&fresh);
                return other.map(|_| Change::Overtaken);
            }
        };
        let put_in = self.rename_without_replacing(&fresh, self.private, self.file, self.records);
        let change = match put_in {
            Ok(()) => Ok(Change::Done),
            Err(Errno::EXIST) => {
                self.drop_private(&fresh);
                Ok(Change::Overtaken)
            }
            Err(errno) => {
                self.drop_private(&fresh);
                let back =
                    self.rename_without_replacing(&away, self.private, self.file, self.records);
                let doing = if back.is_ok() {
                    REPLACING
                } else {
                    "putting the record back that was to be replaced"
                };
                return Err(self.failed(doing, errno));
            }
        };
        self.drop_private(&away);
        change
    }

    fn replace_by_exchange(&self, judged: &Published, bytes: &[u8]) -> Result<Change, StoreError> {
        let fresh = self.write_private(bytes)?;
        let ours = match read_at(self.private, &fresh) {
            Ok(Some(ours)) => ours,
            Ok(None) => return Err(self.failed("writing the record", Errno::NOENT)),
            Err(error) => {
                self.drop_private(&fresh);
                return Err(error);
            }
        };
        match self.exchange(&fresh) {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                // The record was removed since it was judged.
                self.drop_private(&fresh);
                return Ok(Change::Overtaken);
            }
            Err(errno) => {
                self.drop_private(&fresh);
                return Err(self.failed(REPLACING, errno));
            }
        }
        let came_out = self.came_out(&fresh)?;
        if came_out.is(judged) {
            self.drop_private(&fresh);
            return Ok(Change::Done);
        }
        self.exchange_back(&fresh, ours, came_out)
    }

    /// Puts a record back that another program put there since ours was judged. In each exchange, the one
    /// that went in before has to come out. If it does not, another program came first once more, and what
    /// came out goes back.
    fn exchange_back(
        &self,
        fresh: &str,
        mut went_in: Published,
        mut came_out: Published,
    ) -> Result<Change, StoreError> {
        for _ in 1..EXCHANGES_MAX {
            if let Err(errno) = self.exchange(fresh) {
                // Another program removed ours, which stood there for an instant. The one that stood
                // there before belongs to another program and goes back.
                let _ = self.rename_without_replacing(fresh, self.private, self.file, self.records);
                return Err(self.failed(REPLACING, errno));
            }
            let next = self.came_out(fresh)?;
            if next.is(&went_in) {
                self.drop_private(fresh);
                // Another program's record stands again.
                return Ok(Change::Overtaken);
            }
            went_in = std::mem::replace(&mut came_out, next);
        }
        Err(self.failed(REPLACING, Errno::AGAIN))
    }

    /// The record that an exchange brought out.
    fn came_out(&self, fresh: &str) -> Result<Published, StoreError> {
        match read_at(self.private, fresh) {
            Ok(Some(came_out)) => Ok(came_out),
            Ok(None) => Err(self.failed(REPLACING, Errno::AGAIN)),
            Err(error) => {
                // Another program put a link or a folder there since: it goes back as it is.
                if self.exchange(fresh).is_ok() {
                    self.drop_private(fresh);
                }
                Err(error)
            }
        }
    }

    /// Removes the record that was judged, and no other.
    pub(super) fn remove(&self, judged: &Published) -> Result<Change, StoreError> {
        self.lasting(match self.take_away(judged)? {
            Some(away) => {
                self.drop_private(&away);
                Change::Done
            }
            None => Change::Overtaken,
        })
    }

    /// Renames the judged record to a private name, and answers with that name. `None` if another record
    /// stands there, or none.
    fn take_away(&self, judged: &Published) -> Result<Option<String>, StoreError> {
        let mut away = private_name(self.file, "old");
        let rename = |away: &str| os::rename(self.records.fd(), self.file, self.private.fd(), away);
        let mut renamed = rename(&away);
        let is_in_the_way = |errno: Errno| errno != Errno::NOENT && stands(self.private, &away);
        if renamed.is_err_and(is_in_the_way) {
            away = our_own(&away);
            renamed = rename(&away);
        }
        match renamed {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("removing the record", errno)),
        }
        let came_out = read_at(self.private, &away);
        if matches!(&came_out, Ok(Some(out)) if out.is(judged)) {
            return Ok(Some(away));
        }
        match self.rename_without_replacing(&away, self.private, self.file, self.records) {
            // If a third program has created a record meanwhile, that record stands. The displaced one
            // is kept where a person can find it.
            Ok(()) | Err(Errno::EXIST) => Ok(None),
            Err(errno) => Err(self.failed("putting a foreign record back", errno)),
        }
    }

    fn rename_without_replacing(
        &self,
        from: &str,
        from_folder: &Folder,
        to: &str,
        to_folder: &Folder,
    ) -> Result<(), Errno> {
        let (from_fd, to_fd) = (from_folder.fd(), to_folder.fd());
        match os::rename_new(from_fd, from, to_fd, to) {
            // A file system that cannot rename without replacing can link.
            Err(Errno::INVAL | Errno::NOSYS) => {
                os::link(from_fd, from, to_fd, to)?;
                self.drop_private(from);
                Ok(())
            }
            other => other,
        }
    }

    fn exchange(&self, fresh: &str) -> Result<(), Errno> {
        os::exchange(self.private.fd(), fresh, self.records.fd(), self.file)
    }

    /// Writes a whole file under the private name. The guard keeps all other callers of ours away from
    /// that name. So a file that stands there was left behind by a crash. If it cannot be removed, [`our_own`] is used.
    fn write_private(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let mut name = private_name(self.file, GOES_IN);
        let open = |name: &str| match os::open_file(self.private.fd(), name, Open::New) {
            Err(Errno::EXIST) => {
                self.drop_private(name);
                os::open_file(self.private.fd(), name, Open::New)
            }
            other => other,
        };
        let mut opened = open(&name);
        if opened.as_ref().is_err_and(|errno| *errno == Errno::EXIST) {
            name = our_own(&name);
            opened = open(&name);
        }
        let failed = |errno| fault(&self.private.path_of(&name), "writing the record", errno);
        let fd = opened.map_err(failed)?;
        let sync = || if self.durable { os::sync(&fd) } else { Ok(()) };
        if let Err(errno) = write_whole(&fd, bytes).and_then(|()| sync()) {
            drop(fd);
            self.drop_private(&name);
            return Err(failed(errno));
        }
        // A strict umask must not take the right to the record from its users.
        if let Err(errno) = os::share_new(&fd, self.records.sharing, self.records.owner) {
            self.drop_private(&name);
            return Err(failed(errno));
        }
        Ok(name)
    }

    fn drop_private(&self, name: &str) {
        // The next change under the guard overwrites a leftover.
        let _ = os::remove(self.private.fd(), name);
    }

    fn failed(&self, doing: &'static str, errno: Errno) -> StoreError {
        fault(&self.records.path_of(self.file), doing, errno)
    }
}

/// The kind of a private file that will get the record's name.
const GOES_IN: &str = "new";

fn private_name(file: &str, kind: &str) -> String {
    format!("{file}.{kind}")
}

/// The private name that this user takes where a file stands under the other that it can neither remove nor replace. In a
/// folder of several users a crash of another user's call may have left one.
fn our_own(name: &str) -> String {
    format!("{name}.{}", os::our_number())
}

/// How often, and after what pause, a reader looks again for a record that seems to be in the middle of
/// a replacement. A file that a crash left behind must not delay a reader for long.
const ABSENCES_MAX: usize = 50;
const ABSENCE: Duration = Duration::from_millis(1);

/// Reads a record for a caller that only looks, without the guard.
pub(super) fn read_unguarded(
    records: &Folder,
    private: Option<&Folder>,
    file: &str,
) -> Result<Option<Published>, StoreError> {
    if os::EXCHANGES {
        return read_at(records, file);
    }
    read_between_steps(records, private, file, || tenure_os::clock::nap(ABSENCE))
}

/// Reads a record that a replacement in two steps may be changing: between the steps nothing stands
/// there for an instant.
fn read_between_steps(
    records: &Folder,
    private: Option<&Folder>,
    file: &str,
    mut pause: impl FnMut(),
) -> Result<Option<Published>, StoreError> {
    let found = read_at(records, file)?;
    let (None, Some(private)) = (&found, private) else {
        return Ok(found);
    };
    for _ in 0..ABSENCES_MAX {
        if !stands(private, &private_name(file, GOES_IN)) {
            break;
        }
        pause();
    }
    // The record may have gone in between the two looks.
    read_at(records, file)
}

/// Whether a record stands there at all; looks at nothing else.
pub(super) fn stands(records: &Folder, file: &str) -> bool {
    os::facts_at(records.fd(), file).is_ok()
}

fn write_whole(fd: &Descriptor, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match os::uninterrupted(|| os::write(fd, bytes))? {
            0 => return Err(Errno::NOSPC),
            written => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Reads a record: follows no link, does not wait for a FIFO, and reads no more than a record can have.
pub(super) fn read_at(folder: &Folder, file: &str) -> Result<Option<Published>, StoreError> {
    let path = || folder.path_of(file);
    let failed = |errno| fault(&path(), "reading the record", errno);
    let distrusted = |why: Distrust| folder.unsafe_file(file, &why);
    let fd = match os::open_file(folder.fd(), file, Open::Read) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => {
            let why = Distrust::of_file(errno).map(distrusted);
            return Err(why.unwrap_or_else(|| failed(errno)));
        }
    };
    let (facts, modified_ms) = os::facts_and_time(&fd).map_err(failed)?;
    trust::record(&facts, folder.shared).map_err(distrusted)?;
    let length = usize::try_from(facts.size()).unwrap_or(usize::MAX);
    let length = length.min(RECORD_BYTES_MAX);
    let bytes = read_all(length, |buffer| os::read(&fd, buffer)).map_err(failed)?;
    Ok(Some(Published {
        is_too_long: bytes.len() > RECORD_BYTES_MAX,
        bytes,
        inode: facts.inode(),
        modified_ms: tenure_os::clock::written_ms(modified_ms),
    }))
}

/// The room for what another program has written behind the end since the record's length was asked for.
const SPARE_BYTES: usize = 4096;

/// Reads a record that was this long a moment ago. Another program may have written a longer one over it since: cut
/// off, that one could be taken for a record that says something else.
///
/// `read` is the system's call: it reads on into a buffer, and says how many bytes there were.
fn read_all(
    length: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length + SPARE_BYTES];
    let mut filled = 0;
    loop {
        match os::uninterrupted(|| read(bytes.get_mut(filled..).unwrap_or_default()))? {
            0 => break,
            more => filled += more,
        }
        // Another read of a record that has its length would only find the end.
        if filled == length || filled > RECORD_BYTES_MAX {
            break;
        }
        if filled == bytes.len() {
            bytes.resize(2 * filled, 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_to_its_end_however_long_it_was_a_moment_ago() {
        for (length, before, at_once) in [0, 1, 10, 4_096, 100_000]
            .into_iter()
            .flat_map(|length| [0, 1, 9, 10, 11, 5_000].map(|before| (length, before)))
            .flat_map(|(length, before)| [7, 1 << 20].map(|at_once| (length, before, at_once)))
        {
            let record: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            let (mut given, mut calls) = (0, 0);
            let read = read_all(before, |buffer| {
                calls += 1;
                let count = buffer.len().min(at_once).min(length - given);
                buffer[..count].copy_from_slice(&record[given..given + count]);
                given += count;
                // A signal comes first each other time.
                if calls % 2 == 1 && count == 0 {
                    Err(Errno::INTR)
                } else {
                    Ok(count)
                }
            });
            let ends_there = before == length && length > 0;
            assert_eq!(
                read.as_deref(),
                Ok(&*record),
                "{length} bytes, {before} before"
            );
            if at_once > 7 {
                assert!(calls < 12, "{length} bytes, {before} before: {calls} calls");
                assert!(!ends_there || calls == 1, "{length} bytes: {calls} calls");
            }
        }
    }

    /// What stands under the private name and cannot be removed keeps no caller from the record.
    #[test]
    fn a_leftover_that_cannot_be_removed_is_in_nobodys_way() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(scratch.path(), false, true, false);
        let folder = folder.expect("a folder").expect("it is there");
        for left in ["record.new", "record.old"] {
            std::fs::create_dir(scratch.path().join(left)).expect("a folder in the way");
        }
        let record = Publication {
            records: &folder,
            private: &folder,
            file: "record",
            durable: false,
        };
        assert_eq!(record.create(b"one").expect("a record"), Change::Done);
        let judged = record.read().expect("it").expect("it is there");
        assert_eq!(
            record.replace(&judged, b"two").expect("another"),
            Change::Done
        );
        let judged = record.read().expect("it").expect("it is there");
        assert_eq!(judged.bytes, b"two");
        assert_eq!(record.remove(&judged).expect("its end"), Change::Done);
        let left = std::fs::read_dir(scratch.path()).expect("a list").count();
        assert_eq!(left, 2, "what was in the way");
    }

    /// Another program has put a link at the path. It goes back, and our record leaves nothing behind.
    #[cfg(unix)]
    #[test]
    fn a_replacement_that_meets_a_link_leaves_nothing_behind() {
        let (scratch, records, private) = folders();
        let record = Publication {
            records: &records,
            private: &private,
            file: "a.lock",
            durable: false,
        };
        let judged = write(&records, "a.lock", "theirs");
        os::remove(records.fd(), "a.lock").expect("a removal");
        let path = scratch.path().join("a.lock");
        std::os::unix::fs::symlink("elsewhere", &path).expect("a link");
        assert!(record.replace(&judged, b"ours").is_err(), "a link");
        assert!(path.is_symlink(), "the link went back");
        assert!(!stands(&private, "a.lock.new"), "nothing is left behind");
    }

    #[test]
    fn a_record_without_an_end_is_read_until_it_is_too_long() {
        const MAX: usize = 1 << 20;
        for at_once in [4_096, 100_000, MAX] {
            let mut given = 0;
            let read = read_all(10, |buffer| {
                assert!(given <= MAX, "it is too long already");
                // A call ends with the longest record, and the next one brings a byte more.
                let count = buffer.len().min(at_once).min(MAX - given).max(1);
                given += count;
                Ok(count)
            });
            let read = read.expect("an answer").len();
            assert_eq!(read, MAX + 1, "{at_once} at once");
        }
    }

    /// Another program's bytes in the same file are another record. So is another program's own file
    /// with the same bytes: that program may renew it the moment after.
    #[test]
    fn a_record_is_the_one_that_was_judged_by_its_file_and_its_bytes() {
        let judged = Published::of_bytes(b"a record");
        assert!(judged.is(&Published::of_bytes(b"a record")));
        assert!(!judged.is(&Published::of_bytes(b"another")));
        let mut elsewhere = Published::of_bytes(b"a record");
        elsewhere.inode = (0, 1);
        assert!(!judged.is(&elsewhere));
    }

    /// A folder of records, and the private one in it.
    fn folders() -> (tempfile::TempDir, Folder, Folder) {
        let scratch = tempfile::tempdir().expect("a folder");
        let records = Folder::open(scratch.path(), false, false, false);
        let records = records.expect("a good folder").expect("it is there");
        let private = records.open_below("private", true);
        let private = private.expect("a good folder").expect("it was made");
        (scratch, records, private)
    }

    fn write(folder: &Folder, file: &str, text: &str) -> Published {
        std::fs::write(folder.path_of(file), text).expect("a file");
        let found = read_at(folder, file).expect("an answer");
        found.expect("a record")
    }

    #[cfg(unix)]
    fn text(folder: &Folder, file: &str) -> Option<String> {
        std::fs::read_to_string(folder.path_of(file)).ok()
    }

    /// Ours went in for an instant, and theirs came out.
    #[cfg(unix)]
    #[test]
    fn a_record_goes_back_that_came_out_in_place_of_the_judged_one() {
        // What becomes of ours in that instant, whether the change says that it was overtaken, and what stands then.
        for (meanwhile, is_overtaken, stands) in [
            (Some("ours"), true, "theirs"),
            (Some("another"), true, "another"),
            (None, false, "theirs"),
        ] {
            let (_scratch, records, private) = folders();
            let publication = Publication {
                records: &records,
                private: &private,
                file: "a.lock",
                durable: false,
            };
            let ours = write(&records, "a.lock", "ours");
            let theirs = write(&private, "a.lock.new", "theirs");
            if meanwhile != Some("ours") {
                os::remove(records.fd(), "a.lock").expect("a removal");
            }
            if let Some(another) = meanwhile.filter(|it| *it != "ours") {
                write(&records, "a.lock", another);
            }
            let change = publication.exchange_back("a.lock.new", ours, theirs);
            let overtaken = matches!(change, Ok(Change::Overtaken));
            assert_eq!(overtaken, is_overtaken, "{meanwhile:?}: {change:?}");
            assert_eq!(change.is_err(), !is_overtaken, "{meanwhile:?}: {change:?}");
            let left = text(&records, "a.lock");
            assert_eq!(left.as_deref(), Some(stands), "{meanwhile:?}");
            assert_eq!(text(&private, "a.lock.new"), None, "{meanwhile:?}");
        }
    }

    #[test]
    fn between_the_two_steps_of_a_replacement_a_reader_waits_for_the_second() {
        let (_scratch, records, private) = folders();
        let read = |private: Option<&Folder>, pause: &mut dyn FnMut()| {
            let found = read_between_steps(&records, private, "a.lock", pause);
            found.expect("an answer").map(|found| found.bytes)
        };
        let mut pauses = 0;
        assert_eq!(read(Some(&private), &mut || pauses += 1), None);
        assert_eq!(pauses, 0, "no record goes in");
        write(&private, "a.lock.new", "ours");
        assert_eq!(read(None, &mut || pauses += 1), None);
        assert_eq!(pauses, 0, "no private file is known");
        let goes_in = &mut || {
            pauses += 1;
            let (from, to) = (private.path_of("a.lock.new"), records.path_of("a.lock"));
            std::fs::rename(from, to).expect("the second step");
        };
        assert_eq!(read(Some(&private), goes_in), Some(b"ours".to_vec()));
        assert_eq!(pauses, 1, "it goes in");
        write(&private, "a.lock.new", "the next");
        let found = read(Some(&private), &mut || pauses += 1);
        assert_eq!(found, Some(b"ours".to_vec()));
        assert_eq!(pauses, 1, "a record that stands is the record");
    }

    /// Two locks of one folder are changed at the same time, each under its own guard.
    #[test]
    fn each_record_has_private_files_of_its_own() {
        let mut names = Vec::new();
        for file in ["a.lock", "b.lock"] {
            for kind in [GOES_IN, "old"] {
                names.push(private_name(file, kind));
            }
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }

    /// In a shared folder our own records are read as anywhere else. It takes two users to test that
    /// those of others are refused.
    #[cfg(unix)]
    #[test]
    fn our_own_record_is_read_in_a_folder_that_all_may_write() {
        use std::os::unix::fs::PermissionsExt;
        for mode in [0o700, 0o1777] {
            let scratch = tempfile::tempdir().expect("a folder");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(scratch.path(), permissions).expect("its mode");
            std::fs::write(scratch.path().join("a.lock"), "ours").expect("a record");
            let folder = Folder::open(scratch.path(), false, false, false);
            let folder = folder.expect("a good folder").expect("it is there");
            assert_eq!(folder.shared, mode != 0o700);
            let found = read_at(&folder, "a.lock").expect("an answer");
            assert_eq!(found.map(|found| found.bytes), Some(b"ours".to_vec()));
        }
    }

    #[test]
    fn a_record_of_a_mebibyte_is_one_and_of_a_byte_more_is_too_long() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(scratch.path(), false, false, false);
        let folder = folder.expect("a good folder").expect("it is there");
        for (length, is_too_long) in [(0, false), (1 << 20, false), ((1 << 20) + 1, true)] {
            std::fs::write(scratch.path().join("a.lock"), vec![b'x'; length]).expect("a record");
            let found = read_at(&folder, "a.lock").expect("an answer");
            let found = found.map(|found| (found.bytes.len(), found.is_too_long));
            assert_eq!(found, Some((length, is_too_long)));
        }
    }
}
