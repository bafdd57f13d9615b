//! What a holder sees of its own hold: whether it stands, and what happened to its files if it does not.
//!
//! A look goes by the file that the holder keeps open, and by where its name leads. It does not open the name: in a
//! folder where others may write, another user may have put something there that this process cannot open, or must not.
//! For the holder that is the same loss as a removal.
//!
//! # What is a loss, and what may be none
//! - Another file stands at the name, or none does; the list was emptied, or the claim is not in it any more; the
//!   record is another holder's. Each of these is a loss at once: the next caller gets the lock, or has it.
//! - The record is gone or cannot be read, or the list cannot be read. Another program may be in the middle of a write
//!   in two steps, so this is [`Own::Doubtful`]: a loss if it stays. How long it has to stay, the holder decides.
//! - Where the profile refuses a record that it cannot read, no caller gets in by that, and it is no loss. It may become
//!   one: this is [`Own::Unsettled`].
//! - A look that the system fails says nothing about the hold. It is an error, and never a loss by itself.
//!
//! # What it leaves to others
//! When to look and what follows (the supervisor). Callers without a hold read by `look`.

use super::folder::{Folder, fault};
use super::handle::FileHandle;
use super::look::is_half_said;
use super::pages::{self, ReadError, UNKNOWN};
use super::publication::{self, Published};
use super::{FileStore, Latest, fd, joined};
use crate::contract::{Depth, Handle};
use crate::profile::Record;
use crate::{Content, Reading, StoreError, codec};
use std::path::Path;
use tenure_core::{Entry, Now, Renewal, Silence, UnreadableRule};
use tenure_os::os;

/// What a holder sees of its own hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// The claim stands, as a renewal would find it.
    Stands(Renewal),
    /// The claim stands while no caller can read its record. Another program may be writing there, and what it writes
    /// may be a record of its own: the holder looks again.
    Unsettled(Renewal),
    /// The claim does not stand. What happened, as a clause that names the file.
    Lost(String),
    /// The claim is lost if this stays; as a clause that names the file.
    Doubtful(String),
}

impl FileStore {
    /// Looks at the hold of this handle. Changes nothing and waits for nothing.
    ///
    /// # Errors
    /// - [`StoreError`] if the system fails the look. That says nothing about the hold.
    #[doc(hidden)]
    pub fn look_at_own(&self, handle: &dyn Handle, now: &Now) -> Result<Own, StoreError> {
        let handle = self.own_handle(handle)?;
        let names = &handle.names;
        let Some(folder) = in_place(&self.folder, self.folder(false))? else {
            let path = self.list_path(names);
            return Ok(Own::Lost(format!(
                "the folder of {} is not there any more",
                path.display()
            )));
        };
        let path = folder.path_of(&names.list);
        if !leads_to(folder, handle)? {
            return Ok(Own::Lost(gone_or_replaced(folder, &names.list, &path)));
        }
        let entry = match own_list(handle, &path)? {
            Ok(entry) => entry,
            Err(seen) => return Ok(seen),
        };
        let listed = entry.verify(handle.ticket);
        if listed == Renewal::Lost {
            return Ok(Own::Lost(format!(
                "the claim of this run is not in {} any more",
                path.display()
            )));
        }
        match self.profile.record() {
            Some(format) => self.look_at_record(handle, folder, format, entry, now),
            None => Ok(Own::Stands(listed)),
        }
    }

    /// Looks at the record that is published for the hold, whose claim is in the list.
    fn look_at_record(
        &self,
        handle: &FileHandle,
        folder: &Folder,
        format: &dyn Record,
        mut entry: Entry,
        now: &Now,
    ) -> Result<Own, StoreError> {
        let names = &handle.names;
        let path = self.record_path(names);
        let Some(records) = in_place(&self.records, self.records(false))? else {
            return Ok(Own::Lost(format!(
                "the folder of {} is not there any more",
                path.display()
            )));
        };
        let listed = entry.verify(handle.ticket);
        let unreadable = |why: &str| match self.rules.policy.unreadable {
            UnreadableRule::Stale => Own::Doubtful(format!(
                "{} cannot be read as a record any more ({why})",
                path.display()
            )),
            // The record blocks every other caller.
            UnreadableRule::RefuseUnlessForced | UnreadableRule::RefuseUntilTtl => {
                Own::Unsettled(listed)
            }
        };
        let published: Published =
            match publication::read_unguarded(records, Some(folder), &names.record) {
                Ok(Some(published)) => published,
                Ok(None) => {
                    let what = format!("{} was removed or renamed", path.display());
                    return Ok(Own::Doubtful(what));
                }
                // Something stands there that is no record: a link, a pipe, another user's file.
                Err(error @ (StoreError::Unsafe { .. } | StoreError::Permission { .. }))
                    if publication::stands(records, &names.record) =>
                {
                    return Ok(unreadable(&error.to_string()));
                }
                Err(error) => return Err(error),
            };
        // The holder that asks has its byte.
        let around = self.around(names, format, now, &|| true);
        let joined = joined::join(&mut entry, Some(&published), &around);
        Ok(match (joined, entry.verify(handle.ticket)) {
            (Err(broken), _) => unreadable(&broken.why),
            (Ok(()), renewal @ Renewal::Renewed { .. }) => Own::Stands(renewal),
            (Ok(()), Renewal::Lost) if is_half_said(&entry) => unreadable("it is not whole"),
            (Ok(()), Renewal::Lost) => Own::Lost(format!(
                "{} is the record of another holder now",
                path.display()
            )),
        })
    }

    /// The claim of this handle in the file that its holder keeps open, for a holder that may not search the folder any
    /// more. A record is no part of that file, so where one is published only the name tells of the hold.
    pub(super) fn read_own(&self, handle: &FileHandle) -> Result<Reading, StoreError> {
        let path = self.list_path(&handle.names);
        let failed = |errno| fault(&path, "looking at the lock", errno);
        let facts = os::facts(&handle.opened.fd).map_err(failed)?;
        let content = match own_list(handle, &path)? {
            Ok(mut entry) => {
                entry.claims.retain(|claim| claim.ticket == handle.ticket);
                let (local, file) = (self.is_local(), fd(&handle.opened));
                let own = handle.ticket_on(&handle.opened);
                let see = |claim| self.evidence(local, file, own, claim, Depth::Quick);
                let evidence = entry.claims.iter().map(see).collect();
                Content::Whole { entry, evidence }
            }
            Err(Own::Doubtful(why)) => Content::Unreadable {
                why,
                silence: Silence::UNTOLD,
            },
            Err(Own::Lost(_) | Own::Stands(_) | Own::Unsettled(_)) => {
                return Ok(self.gone(&handle.names));
            }
        };
        Ok(Reading {
            place: self.shown(&handle.names),
            content,
            stopped: Vec::new(),
            stored: facts.names() > 0,
            record: Vec::new(),
        })
    }

    /// Whether the name of a hold's file leads elsewhere, for a caller that could not open it.
    pub(super) fn is_led_elsewhere(&self, handle: &FileHandle) -> bool {
        match self.folder.get() {
            Some(folder) => matches!(leads_to(folder, handle), Ok(false)),
            None => false,
        }
    }

    /// Whether users other than the folder's owner may write where the files of the locks are. No kernel keeps such a
    /// user from a lock file, so a holder has to look at its own.
    #[doc(hidden)]
    pub fn others_may_write(&self) -> bool {
        let folders = [&self.folder, &self.records];
        let mut opened = folders.into_iter().filter_map(Latest::get);
        opened.any(|folder| os::facts(folder.fd()).is_ok_and(|facts| facts.others_may_write()))
    }
}

/// The list in the file that the holder keeps open; or else what its state means.
fn own_list(handle: &FileHandle, path: &Path) -> Result<Result<Entry, Own>, StoreError> {
    let unreadable = |why: &str| {
        Err(Own::Doubtful(format!(
            "{} cannot be read as a lock any more ({why})",
            path.display()
        )))
    };
    Ok(match pages::read_unguarded(fd(&handle.opened), UNKNOWN) {
        Ok(snapshot) if snapshot.sequence == 0 => {
            Err(Own::Lost(format!("{} was emptied", path.display())))
        }
        Ok(snapshot) => match codec::decode(&snapshot.text.bytes) {
            Ok(entry) => Ok(entry),
            Err(error) => unreadable(&String::from(error)),
        },
        Err(ReadError::Torn(why)) => unreadable(&why),
        Err(error) => return Err(error.into_store(path)),
    })
}

/// The folder, as it was opened. `None` if it is not where it was. Something that cannot be opened may be in its place
/// then, which is no error of the look.
fn in_place<'a>(
    latest: &'a Latest,
    opened: Result<Option<&'a Folder>, StoreError>,
) -> Result<Option<&'a Folder>, StoreError> {
    opened.or_else(|error| match latest.get() {
        Some(folder) if !folder.is_in_place() => Ok(None),
        Some(_) | None => Err(error),
    })
}

/// Whether the name of a hold's file still leads to the file that its holder keeps open.
fn leads_to(folder: &Folder, handle: &FileHandle) -> Result<bool, StoreError> {
    match folder.look_for(&handle.names.list, &handle.opened) {
        Ok(found) => Ok(found.is_some_and(|facts| facts.inode() == handle.opened.inode())),
        Err(errno) => {
            let path = folder.path_of(&handle.names.list);
            Err(fault(&path, "looking at the lock", errno))
        }
    }
}

fn gone_or_replaced(folder: &Folder, file: &str, path: &Path) -> String {
    match os::facts_at(folder.fd(), file) {
        Ok(_) => format!("something else stands in the place of {}", path.display()),
        Err(_) => format!("{} was removed or renamed", path.display()),
    }
}
