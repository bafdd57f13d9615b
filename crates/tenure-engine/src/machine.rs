//! Makes the machine's folder of locks for a group, as its administrator asks for it.
//!
//! The way to the folder is walked from the root on, and each part is opened in the one before it. A folder in
//! which other users may exchange what they did not make is not passed, nor one of another user, nor a link that
//! another user could have made.
//!
//! # Crash safety
//! A folder gets its name when it has its group and its rights, whatever the umask. A death before that leaves an
//! empty folder of root's under a private name.
//!
//! Where the folder is, `place` says.

use crate::os::{self, Descriptor, Errno, Facts, Sharing};
use crate::place::MACHINE_RIGHTS;
use crate::private::make_under_private_name;
use crate::store::StoreError;
use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The rights of a folder above it that is made with it.
const RIGHTS_ABOVE: u32 = 0o755;

/// How many links the way may have.
const LINKS_MAX: u32 = 16;

/// A group of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(u32);

impl Group {
    /// The group of this name, or of this number. `None` if there is no such name in `/etc/group`.
    pub fn named(written: &str) -> Option<Self> {
        os::group_number(written).map(Self)
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was made.
    New,
    /// It was there, and got its group or its rights.
    Changed,
    /// It was there as it has to be.
    Unchanged,
}

/// Whether this process may make the folder.
pub fn may_make() -> bool {
    os::is_root()
}

/// Makes the folder for the members of a group, or gives the one that is there its group and its rights.
///
/// # Errors
/// - [`StoreError::Unsafe`] if another user may have a hand in it, and if it is in use for another group.
/// - [`StoreError`] as the system answers.
pub fn make(path: &Path, group: Group) -> Result<Made, StoreError> {
    let (above, at, name) = above(path)?;
    let own = at.join(&name);
    let made = match os::facts_at(&above, &name) {
        Ok(_) => false,
        Err(Errno::NOENT) => {
            make_under_private_name(&above, &name, &|folder| {
                os::give_to_group(folder, Some(group.0), MACHINE_RIGHTS)
            })
            .map_err(|errno| failed(&own, errno))?;
            true
        }
        Err(errno) => return Err(failed(&own, errno)),
    };
    // Also what was just made is looked at: another process may have made it first.
    let folder = os::open_folder_in(&above, &name).map_err(|errno| in_the_way(&own, errno))?;
    let facts = os::facts(&folder).map_err(|errno| failed(&own, errno))?;
    refuse_strangers(&own, &facts)?;
    let Group(number) = group;
    let is_its = facts.group() == number;
    if is_its && facts.sharing() == Sharing::Group {
        return Ok(if made { Made::New } else { Made::Unchanged });
    }
    // What is in it has the rights that it was made with, and the group would not get at it.
    let is_empty = is_empty(&folder).map_err(|errno| failed(&own, errno))?;
    if !is_empty && facts.sharing() != Sharing::Group {
        let why = format!(
            "it is there with mode {}, which is not that of a group's folder, and files are in it; move them \
             away while no call uses them, and ask again",
            facts.mode_text()
        );
        return Err(refused(&own, why));
    }
    if !is_its && !is_empty {
        let of = facts.group_name();
        let why = format!(
            "it is there for the group {of}, and files of that group are in it; give it away with \
             `chgrp -R` if they are to be another group's"
        );
        return Err(refused(&own, why));
    }
    os::give_to_group(&folder, Some(number), MACHINE_RIGHTS)
        .map_err(|errno| failed(&own, errno))?;
    let facts = os::facts(&folder).map_err(|errno| failed(&own, errno))?;
    if facts.group() != number || facts.sharing() != Sharing::Group {
        let why = "its file system does not keep the group and its rights".to_owned();
        return Err(refused(&own, why));
    }
    Ok(Made::Changed)
}

/// The folder above, opened; its path without links; and the last name. Folders on the way that are not there are
/// made.
fn above(path: &Path) -> Result<(Descriptor, PathBuf, String), StoreError> {
    let mut names = VecDeque::new();
    queue(&mut names, path)?;
    let root = || os::open_folder(Path::new("/")).map_err(|errno| failed(Path::new("/"), errno));
    let (mut folder, mut at) = (root()?, PathBuf::from("/"));
    let mut links = 0;
    loop {
        let facts = os::facts(&folder).map_err(|errno| failed(&at, errno))?;
        refuse_strangers(&at, &facts)?;
        if facts.others_may_write() && !facts.is_sticky() {
            let why = "other users may exchange what is in it".to_owned();
            return Err(refused(&at, why));
        }
        let Some(name) = names.pop_front() else {
            return Err(refused(path, "it names no folder".to_owned()));
        };
        if names.is_empty() {
            return Ok((folder, at, name));
        }
        let next = at.join(&name);
        match os::facts_at(&folder, &name) {
            Ok(found) if found.is_link() => {
                links += 1;
                if facts.others_may_write() || !found.is_roots() || links > LINKS_MAX {
                    let why = "it is a link that another user could have made".to_owned();
                    return Err(refused(&next, why));
                }
                let target = os::target_of(&folder, &name).map_err(|e| failed(&next, e))?;
                if target.is_absolute() {
                    (folder, at) = (root()?, PathBuf::from("/"));
                }
                let mut more = VecDeque::new();
                queue(&mut more, &target)?;
                more.append(&mut names);
                names = more;
                continue;
            }
            Ok(_) => {}
            Err(Errno::NOENT) => make_under_private_name(&folder, &name, &|folder| {
                os::give_to_group(folder, None, RIGHTS_ABOVE)
            })
            .map_err(|errno| failed(&next, errno))?,
            Err(errno) => return Err(failed(&next, errno)),
        }
        folder = os::open_folder_in(&folder, &name).map_err(|errno| in_the_way(&next, errno))?;
        at = next;
    }
}

/// The names of a path, in their order.
fn queue(names: &mut VecDeque<String>, path: &Path) -> Result<(), StoreError> {
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => match name.to_str() {
                Some(name) => names.push_back(name.to_owned()),
                None => return Err(refused(path, "its name is not UTF-8".to_owned())),
            },
            Component::ParentDir | Component::Prefix(_) => {
                return Err(refused(path, "write it without `..`".to_owned()));
            }
        }
    }
    Ok(())
}

fn is_empty(folder: &Descriptor) -> Result<bool, Errno> {
    let mut count = 0_usize;
    os::each_entry(folder, &mut |name| {
        count += usize::from(!matches!(name, Some("." | "..")));
    })?;
    Ok(count == 0)
}

fn refuse_strangers(path: &Path, facts: &Facts) -> Result<(), StoreError> {
    if facts.is_roots() {
        return Ok(());
    }
    let why = format!("it belongs to {}, and not to root", facts.owner_text());
    Err(refused(path, why))
}

fn in_the_way(path: &Path, errno: Errno) -> StoreError {
    match errno {
        Errno::LOOP | Errno::NOTDIR => {
            refused(path, "a link or a file is in the way; remove it".to_owned())
        }
        errno => failed(path, errno),
    }
}

fn refused(path: &Path, why: String) -> StoreError {
    StoreError::Unsafe {
        place: path.display().to_string(),
        why,
    }
}

fn failed(path: &Path, errno: Errno) -> StoreError {
    let (place, doing) = (path.display().to_string(), "making the machine's folder");
    match errno {
        Errno::ACCESS | Errno::PERM => StoreError::Permission { place, doing },
        errno => StoreError::Io {
            place,
            doing,
            source: io::Error::from(errno),
        },
    }
}
