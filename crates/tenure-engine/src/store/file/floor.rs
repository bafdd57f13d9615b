//! The floor of a folder: the highest number of all coordination files that were removed from it. The
//! numbers of their successors stay above it.

use super::folder::{Access, Folder, fault};
use super::guarded::{GUARD_PATIENCE, Guarded};
use super::names::Names;
use super::pages::{self, Room};
use super::{FileStore, fd};
use crate::os;
use crate::profile::SUFFIX;
use crate::store::StoreError;
use crate::store::codec;
use crate::store::contract::REMOVING;

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

/// The highest number of files that were removed from this folder.
///
/// A floor that may not be read is an error. Without it only the clock would be left, and a clock that
/// was set back would give numbers out again. An empty floor file says nothing, readable or not: it gets
/// its rights before its first number ([`raise`]). A process that was killed in between has removed
/// nothing. We hold the guard of a file under the name that we ask for. So no file of that name is
/// removed any more, and an earlier removal has raised the floor.
pub(super) fn read(folder: &Folder) -> Result<u64, StoreError> {
    let file = floor_file(folder);
    let opened = match folder.open_file(&file, Access::Read) {
        Err(StoreError::Permission { .. })
            if os::facts_at(folder.fd(), &file).is_ok_and(|facts| facts.size() == 0) =>
        {
            return Ok(0);
        }
        Err(StoreError::Permission { place, .. }) => {
            let doing = "reading the highest token of removed locks; `tenure clean`, run by \
                         root or by this file's owner, gives it the right mode";
            return Err(StoreError::Permission { place, doing });
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
fn raise(store: &FileStore, removed: &Guarded<'_>, last: u64) -> Result<(), StoreError> {
    let folder = removed.folder;
    let names = Names {
        name: removed.names.name.clone(),
        list: floor_file(folder),
        record: String::new(),
    };
    let mut opened = None;
    let guarded = match store.guard_name(&names, Access::Create, GUARD_PATIENCE, &mut opened) {
        Ok(Some(guarded)) => guarded,
        Ok(None) => return Ok(()),
        // The floor only rises. So it is enough to read it, if it is high enough already.
        Err(StoreError::Permission { place, .. }) => {
            if read(folder)? >= last {
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
    let snapshot = guarded
        .snapshot()
        .map_err(|error| error.into_store(&path()))?;
    let mut entry =
        codec::decode(&snapshot.text.bytes).map_err(|error| StoreError::Unreadable {
            place: path().display().to_string(),
            why: error.into(),
        })?;
    if entry.last < last {
        entry.raise(last);
        guarded.write_list(&snapshot, &entry, Room::All)?;
    }
    Ok(())
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
