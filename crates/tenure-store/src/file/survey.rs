//! What the folder of a store is like, for a caller that only looks: whether calls can use it and, if it is not
//! there, whether they can make it; which users it is for; what it is on.
//!
//! Each answer comes from the function that a call asks. Nothing is made or locked here.

use super::folder::{Folder, fault, io_fault, refuse_above};
use super::trial::Trial;
use super::{FileStore, NATIVE_BESIDE, floor};
use crate::StoreError;
use crate::profile::LEDGER;
use std::path::{Path, PathBuf};
use tenure_os::os::{self, BorrowedDescriptor, Descriptor, Errno, Facts, Mount, Sharing};
use tenure_os::private::could_make_folder;
use tenure_os::trust::{self, Named, OpenPath, OpenRefusal};

/// A folder as it was found.
#[derive(Debug)]
pub struct Survey {
    /// The folder of the coordination files.
    pub path: PathBuf,
    /// Whether it is there; an error if calls cannot use it, as they would get it.
    pub is_there: Result<bool, StoreError>,
    /// Owner of the folder and users of its locks, as far as it is there; also where this process may not open it.
    pub whose: Option<(String, Users)>,
    /// Whose it will be once the first call has made it, if calls can make it.
    pub will_be: Option<Users>,
    /// The folder, or the nearest one above it that is there and that this process may open.
    pub nearest: Option<Nearest>,
    /// Where the records lie, in a folder that is there, for a profile that publishes.
    pub records: Option<PathBuf>,
    /// Why the file that says the highest token of removed locks is not believed.
    pub set_aside: Option<String>,
    /// Calls refuse the folder because every user may replace a lock in it.
    is_open_to_all: bool,
}

/// The folder of the locks, or the nearest one above it.
#[derive(Debug)]
pub struct Nearest {
    fd: Descriptor,
    facts: Facts,
    /// Where it is.
    pub path: PathBuf,
    /// What is mounted there; `None` where the system does not tell.
    pub mount: Option<Mount>,
    /// The kind of that, if other machines or another program stand behind it.
    pub remote: Option<&'static str>,
}

/// The users whom the locks of a folder are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// The folder's owner.
    Owner(String),
    /// The owner; the members of the group may look.
    OwnerAndReaders {
        /// The owner.
        owner: String,
        /// The group.
        group: String,
    },
    /// The members of the group.
    Group(String),
    /// The folder's owner, and whom its default ACL lets in.
    Listed(String),
    /// Each user has locks of their own there.
    Each,
}

impl FileStore {
    /// Looks at the folder of the locks.
    #[doc(hidden)]
    pub fn survey(&self) -> Survey {
        let path = self.lists_path();
        // Where the store has opened the folder, nothing else is looked at: another user may exchange a link on
        // the way to it meanwhile, or may have made one that the store refuses.
        let (is_there, nearest) = match self.folder(false) {
            Ok(Some(folder)) => (Ok(true), Nearest::of(folder).ok()),
            Ok(None) => (
                self.could_make(&path).map(|()| false),
                Nearest::to(&path).ok(),
            ),
            Err(error) => (Err(error), Nearest::to(&path).ok()),
        };
        // A folder of tenure's own below another one has its rights by that one.
        let is_open_to_all = matches!(is_there, Err(StoreError::Unsafe { .. }))
            && !self.is_ledger()
            && nearest.as_ref().is_some_and(|nearest| {
                nearest.path == path && trust::lets_anybody_replace(&nearest.facts)
            });
        let records = match (self.profile.record(), self.records(false)) {
            (Some(_), Ok(Some(folder))) => Some(folder.path().to_owned()),
            _ => None,
        };
        let facts = os::facts_of(&path).ok();
        // What is made in a group's folder is the group's, and all else the caller's own.
        let will_be = matches!(is_there, Ok(false)).then(|| {
            let around = nearest.as_ref().map(Nearest::users);
            let groups = around.filter(|users| matches!(users, Users::Group(_)));
            groups.unwrap_or_else(|| Users::Owner(os::our_name()))
        });
        let lists = self.folder(false).ok().flatten();
        Survey {
            set_aside: lists.and_then(|folder| floor::read(folder).set_aside),
            will_be,
            whose: facts.map(|facts| (facts.owner_name(), users_of(&facts))),
            nearest,
            records,
            path,
            is_there,
            is_open_to_all,
        }
    }

    /// The folder of the coordination files, whether it is there or not.
    fn lists_path(&self) -> PathBuf {
        match (&self.beside, self.profile.record()) {
            (Some(beside), _) => beside.place.join(LEDGER).join(NATIVE_BESIDE),
            (None, Some(_)) => self.path.join(LEDGER),
            (None, None) => self.path.clone(),
        }
    }

    /// Whether the first call that takes a lock could make the folder.
    fn could_make(&self, path: &Path) -> Result<(), StoreError> {
        if (self.is_of_machine)(path) {
            return Err(StoreError::Missing {
                place: path.display().to_string(),
            });
        }
        refuse_above(path, self.named)?;
        let making = |at: &Path, errno| fault(at, "making the lock folder", errno);
        if self.profile.place().must_exist && !self.path.is_dir() {
            return Err(making(&self.path, Errno::NOENT));
        }
        could_make_folder(path)
            .map_err(|(at, error)| io_fault(&at, "making the lock folder", error))
    }
}

impl Survey {
    /// Whether calls refuse the folder because every user may replace a lock in it.
    pub fn is_open_to_all(&self) -> bool {
        self.is_open_to_all
    }
}

impl Nearest {
    fn to(path: &Path) -> Result<Self, Errno> {
        let mut folders = path.ancestors().filter(|it| !it.as_os_str().is_empty());
        let path = folders.find(|it| it.is_dir()).ok_or(Errno::NOENT)?;
        // A link of another user leads to what that user chose.
        let fd = match OpenPath::folder(path, Named::ByNobody) {
            Ok(opened) => opened.fd,
            Err(OpenRefusal::Opening(errno)) => return Err(errno),
            Err(_) => return Err(Errno::ACCESS),
        };
        Self::opened(path, fd)
    }

    /// The folder that the store has opened.
    fn of(folder: &Folder) -> Result<Self, Errno> {
        let fd: BorrowedDescriptor<'_> = folder.fd();
        let copy = fd.try_clone_to_owned();
        Self::opened(
            folder.path(),
            copy.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
        )
    }

    fn opened(path: &Path, fd: Descriptor) -> Result<Self, Errno> {
        Ok(Self {
            facts: os::facts(&fd)?,
            mount: os::mount_of(&fd),
            remote: os::remote_kind_of(&fd)?,
            path: path.to_owned(),
            fd,
        })
    }

    /// Rights of the folder, as `chmod` takes them.
    pub fn mode(&self) -> String {
        self.facts.mode_text()
    }

    /// Owner of the folder.
    pub fn owner(&self) -> String {
        self.facts.owner_name()
    }

    /// The users whom its locks are for.
    pub fn users(&self) -> Users {
        users_of(&self.facts)
    }

    /// Whether this process may make files in it.
    ///
    /// # Errors
    /// - [`StoreError`] as a call would get it.
    pub fn may_write(&self) -> Result<(), StoreError> {
        os::may_write_in(&self.fd).map_err(|errno| fault(&self.path, "opening the lock", errno))
    }

    /// The file of a trial in it. `None` if it would need a name there, and may have none.
    ///
    /// # Errors
    /// - [`StoreError`] if no file can be made there.
    pub fn trial(&self, may_have_name: bool) -> Result<Option<Trial>, StoreError> {
        Trial::make(&self.fd, &self.path, may_have_name)
    }
}

fn users_of(facts: &Facts) -> Users {
    let (owner, group) = (facts.owner_name(), facts.group_name());
    match facts.sharing() {
        Sharing::Group if facts.is_listed() => Users::Listed(owner),
        Sharing::Group => Users::Group(group),
        Sharing::GroupReads => Users::OwnerAndReaders { owner, group },
        Sharing::Owner if facts.all_may_write() => Users::Each,
        Sharing::Owner => Users::Owner(owner),
    }
}
