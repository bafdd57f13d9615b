//! The floor of a folder: the highest number of all coordination files that were removed from it. The
//! numbers of their successors stay above it.

use super::folder::{Access, Folder, fault};
use super::guarded::{GUARD_PATIENCE, Guarded};
use super::names::Names;
use super::pages::{self, ReadError, Room, Snapshot};
use super::{FileStore, fd};
use crate::StoreError;
use crate::advice;
use crate::codec;
use crate::contract::REMOVING;
use crate::profile::SUFFIX;
use tenure_os::os;
use tenure_os::private::new_name;

/// The coordination file that remembers that number. No lock can have this name.
///
/// In a folder that every user may write to, each user has a floor file of their own: there, no user
/// opens another user's files.
fn floor_file(folder: &Folder) -> String {
    if folder.shared {
        let user = os::user_number();
        format!(".floor.{user}{SUFFIX}")
    } else {
        format!(".floor{SUFFIX}")
    }
}

/// How high a floor is believed. The rest up to 2^53 is room for the numbers of new locks: a million million of them. No clock
/// gives a number like that before the year 2255.
const BELIEVED_MAX: u64 = (1 << 53) - (1 << 40);

/// The floor of a folder, as far as it is believed.
pub(super) struct Floor {
    /// The highest number of files that were removed from this folder.
    pub(super) last: u64,
    /// Why the file that should say so is not believed.
    pub(super) set_aside: Option<String>,
}

/// The floor. What any user of a shared folder may write there keeps no user out: a file that is none, cannot be read, or says
/// more than [`BELIEVED_MAX`] is set aside, and the numbers of new locks count from the clock alone. A clock that was set back
/// may then give numbers out again, so the caller is warned.
///
/// An empty floor file says nothing, readable or not: it gets its rights before its first number ([`raise`]). A process
/// that was killed in between has removed nothing. We hold the guard of a file under the name that we ask for. So no file
/// of that name is removed any more, and an earlier removal has raised the floor.
pub(super) fn read(folder: &Folder) -> Floor {
    let why = match number(folder) {
        Ok(last) if last <= BELIEVED_MAX => {
            return Floor {
                last,
                set_aside: None,
            };
        }
        Ok(last) => format!("{last} is higher than the number of any lock"),
        Err(error) => error.to_string(),
    };
    let file = floor_file(folder);
    let owner = os::facts_at(folder.fd(), &file).map(|facts| facts.owner_text());
    let owner = owner.map_or_else(|_| String::new(), |owner| format!(" of {owner}"));
    let dir = folder.path().to_string_lossy();
    let clean = advice::line([advice::PROGRAM, "--dir", &dir, "clean"]);
    Floor {
        last: 0,
        set_aside: Some(format!(
            "{}{owner} should say the highest token of removed locks and is set aside ({why}); the tokens of new locks count \
             from the clock; `{clean}`, run by root or by its owner, mends it",
            folder.path_of(&file).display()
        )),
    }
}

/// The number that the floor file has; 0 without one.
fn number(folder: &Folder) -> Result<u64, StoreError> {
    let file = floor_file(folder);
    let opened = match folder.open_file(&file, Access::Read) {
        Err(StoreError::Permission { .. })
            if os::facts_at(folder.fd(), &file).is_ok_and(|facts| facts.size() == 0) =>
        {
            return Ok(0);
        }
        other => other?,
    };
    let Some(opened) = opened else {
        return Ok(0);
    };
    match pages::read_unguarded(fd(&opened), opened.length) {
        Ok(snapshot) => codec::decode(&snapshot.text.bytes)
            .map(|entry| entry.last)
            .map_err(|error| StoreError::Unreadable {
                place: folder.path_of(&file).display().to_string(),
                why: error.into(),
            }),
        Err(error) => Err(error.into_store(&folder.path_of(&file))),
    }
}

/// Raises the floor before a file is removed, so that its successor's numbers stay above. If that fails,
/// the file is not removed.
///
/// Every user who may make locks in the folder has to read the floor, and every user who may clean there
/// has to raise it. So it gets the folder's owner and group each time. That happens before the number is
/// written: a floor with content can be read by all of them, whenever its writer is killed.
///
/// The last number of a list raises it no higher than it is believed: no clock of ours gave such a number.
/// What stands there and is no floor is replaced, where this user may do that.
fn raise(store: &FileStore, removed: &Guarded<'_>, last: u64) -> Result<(), StoreError> {
    let folder = removed.folder;
    let last = last.min(BELIEVED_MAX);
    let names = Names {
        name: removed.names.name.clone(),
        list: floor_file(folder),
        record: String::new(),
    };
    let mut opened = None;
    if os::facts_at(folder.fd(), &names.list).is_ok_and(|facts| !facts.is_regular()) {
        put_away(folder, &names.list);
    }
    let guarded = match store.guard_name(&names, Access::Create, GUARD_PATIENCE, &mut opened) {
        Ok(Some(guarded)) => guarded,
        Ok(None) => return Ok(()),
        // The floor only rises. So it is enough to read it, if it is high enough already.
        Err(StoreError::Permission { place, .. }) => {
            if read(folder).last >= last {
                return Ok(());
            }
            let doing = "raising the highest token of removed locks";
            return Err(StoreError::Permission { place, doing });
        }
        Err(error) => return Err(error),
    };
    let path = || folder.path_of(&names.list);
    if !folder.shared {
        os::facts(folder.fd())
            .and_then(|facts| os::share_within(&facts, fd(guarded.opened)))
            .map_err(|errno| fault(&path(), "giving it to those who may use the folder", errno))?;
    }
    let (snapshot, entry) = match guarded.snapshot() {
        Ok(snapshot) => {
            let entry = codec::decode(&snapshot.text.bytes).ok();
            (snapshot, entry.filter(|entry| entry.last <= BELIEVED_MAX))
        }
        Err(ReadError::Torn(_)) => (Snapshot::replacing_torn(), None),
        Err(error) => return Err(error.into_store(&path())),
    };
    let is_believed = entry.is_some();
    let mut entry = entry.unwrap_or_default();
    if entry.last < last || !is_believed {
        entry.raise(last);
        guarded.write_list(&snapshot, &entry, Room::All)?;
    }
    Ok(())
}

/// Renames what stands at the floor's name and is no plain file, if this user may.
fn put_away(folder: &Folder, file: &str) {
    let _ = os::rename_new(folder.fd(), file, folder.fd(), new_name(file));
}

impl Guarded<'_> {
    /// Removes the coordination file of a lock without claims, and keeps its highest number.
    ///
    /// # Crash safety
    /// Death after the floor is raised and before the removal: the file is still there, and free.
    pub(super) fn remove_list(&self, last: u64) -> Result<(), StoreError> {
        raise(self.store, self, last)?;
        let list = &self.names.list;
        os::remove(self.folder.fd(), list)
            .map_err(|errno| fault(&self.folder.path_of(list), REMOVING, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::super::segments::Piece;
    use super::*;
    use crate::Verbs;
    use crate::file::ThreadSleeper;
    use std::borrow::Cow;
    use std::path::Path;
    use tenure_core::{
        Entering, Entry, Force, Holder, Kind, LockName, Patience, Request, RequestId, Terms,
    };
    use tenure_os::clock::{Clock, SystemClock};
    use tenure_os::process::Identity;

    /// Writes a list with this counter, as any user may who may write the file.
    fn plant(path: &Path, last: u64) {
        let entry = Entry {
            last,
            ..Entry::default()
        };
        let body = codec::encode(&entry).expect("a list");
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(path).expect("a file");
        let list = vec![Piece::Lines(Cow::Owned(body))];
        let none = Snapshot::replacing_torn();
        let file = os::borrow(&file);
        assert!(pages::write(file, &none, list, Room::All).expect("a write"));
    }

    struct Locks {
        scratch: tempfile::TempDir,
        identity: Identity,
        name: LockName,
    }

    impl Locks {
        fn new() -> Self {
            Self {
                scratch: tempfile::tempdir().expect("a folder"),
                identity: Identity::current(),
                name: LockName::new("a").expect("a name"),
            }
        }

        fn store(&self) -> FileStore {
            let here = self.identity.host.clone();
            FileStore::new(self.scratch.path(), here, Box::new(ThreadSleeper))
        }

        /// Takes the lock and gives it back. `None` if that is refused.
        fn take(&self) -> Option<u64> {
            let store = self.store();
            let now = SystemClock::new(self.identity.host.boot_id.as_deref()).now();
            let request = Request {
                holder: Holder {
                    facts: Vec::new(),
                    request_id: RequestId::new("r").expect("an id"),
                    actor: String::new(),
                    process: Some(self.identity.process),
                    command: None,
                    host: self.identity.host.clone().into(),
                    why: String::new(),
                },
                kind: Kind::Kernel,
                ttl_ms: 1_000,
                force: Force::No,
                patience: Patience::AtOnce,
                terms: Terms::default(),
            };
            let entered = store.enter(&self.name, request, &now).ok()?;
            let Entering::Granted { token, .. } = entered.entering else {
                return None;
            };
            let handle = entered.handle.expect("a handle");
            store.verify(&*handle, &now).expect("it can be read again");
            store.release(&*handle, &now).expect("a release");
            Some(token)
        }

        fn clean(&self) -> bool {
            let now = SystemClock::new(self.identity.host.boot_id.as_deref()).now();
            let cleaned = self.store().clean(&self.name, &now, false);
            cleaned.expect("a cleaning").removed
        }
    }

    #[test]
    fn number_is_believed_up_to_its_bound_table() {
        for (last, is_believed) in [
            (1, true),
            (BELIEVED_MAX - 100, true),
            (BELIEVED_MAX + 1, false),
            (1 << 53, false),
        ] {
            let locks = Locks::new();
            plant(&locks.scratch.path().join(".floor.tenure"), last);
            let token = locks.take().expect("no floor keeps a user out");
            assert_eq!(
                token > last,
                is_believed || last == 1,
                "{token} after {last}"
            );
            let mut before = token;
            for _ in 0..3 {
                assert!(locks.clean(), "{last}");
                let token = locks.take().expect("a lock");
                assert!(token > before, "{token} after {before}, of {last}");
                before = token;
            }
        }
    }

    #[test]
    fn counter_at_its_end_poisons_no_other_lock() {
        for last in [(1 << 53) - 1, 1 << 53] {
            let locks = Locks::new();
            let path = locks.scratch.path().join("a.tenure");
            plant(&path, last);
            assert_eq!(
                locks.take(),
                None,
                "{last}: no list that nobody can read again"
            );
            plant(&path, last);
            assert!(locks.clean(), "{last}");
            for _ in 0..3 {
                locks.take().expect("a lock");
            }
            assert!(locks.clean(), "{last}");
            locks.take().expect("a lock");
        }
    }
}
