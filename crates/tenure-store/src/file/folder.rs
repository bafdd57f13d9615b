//! The folder that holds lock files: opens it, and refuses folders and files that cannot be trusted.
//!
//! Every file is opened relative to the folder's own descriptor, never through a link, and is checked
//! after it is opened. The folder's mode says for whom its files are made (`private`). These are refused:
//! - a folder that everyone may write to and that lacks the sticky bit, because any user could replace a
//!   lock file;
//! - in such a folder with the sticky bit, files that are not ours;
//! - in a sticky folder of a group, another member's folder without the sticky bit;
//! - links and special files in place of lock files, and files with a second name;
//! - file systems that do not promise locks that hold between all callers that see them.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tenure_os::os::{self, BorrowedDescriptor, Descriptor, Errno, Facts, Open, Root, Sharing};
use tenure_os::private::IGNORE_FILE;
use tenure_os::private::{
    ignore_all, make_folder, open_or_make, open_own_folder, open_own_folder_in,
};
use tenure_os::trust::{self, Contents, Distrust, Named, OpenRefusal};

/// The folder, opened and checked.
#[derive(Debug)]
pub(super) struct Folder {
    fd: Descriptor,
    path: PathBuf,
    /// As it was when it was opened.
    facts: Facts,
    /// Only this machine can reach it.
    pub(super) local: bool,
    /// Every user may create files in it.
    pub(super) shared: bool,
    /// For whom its files are made.
    pub(super) sharing: Sharing,
    /// The other user to whom belong the files that root makes in it: root's own would lock the folder's owner out.
    pub(super) owner: Option<u32>,
    /// Users for whom it is not can read it.
    pub(super) readable: bool,
    /// The root from which its path leads to it, for a program that may get another one.
    pub(super) root: Option<Arc<Root>>,
}

/// A folder that was opened, and each one that was opened in its place after a removal or renaming. A
/// caller that works with an older one keeps working with it, so none is closed before the store is
/// dropped.
#[derive(Debug, Default)]
pub(super) struct Latest(OnceLock<Box<Link>>);

#[derive(Debug)]
struct Link {
    folder: Folder,
    newer: Latest,
}

impl Latest {
    /// The folder to work with, if one was opened.
    pub(super) fn get(&self) -> Option<&Folder> {
        let mut link = self.0.get()?;
        while let Some(newer) = link.newer.0.get() {
            link = newer;
        }
        Some(&link.folder)
    }

    /// How many were opened so far, and one more if the last of them is no longer in its place.
    pub(super) fn moves(&self) -> u64 {
        let mut moves = 0;
        let mut place = &self.0;
        let mut last = None;
        while let Some(link) = place.get() {
            moves += 1;
            last = Some(&link.folder);
            place = &link.newer.0;
        }
        moves + u64::from(last.is_some_and(|folder| !folder.is_in_place()))
    }

    /// Makes this folder the one to work with from now on.
    pub(super) fn put(&self, folder: Folder) -> &Folder {
        let mut place = &self.0;
        while let Some(link) = place.get() {
            place = &link.newer.0;
        }
        let newer = Self::default();
        &place
            .get_or_init(|| Box::new(Link { folder, newer }))
            .folder
    }
}

/// The purpose for which a lock file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To look only.
    Read,
    /// To change what is there.
    Write,
    /// To change it, and to make it if it is not there.
    Create,
}

/// A lock file, opened and checked.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fd: Descriptor,
    inode: (u64, u64),
    /// How long it was then.
    pub(super) length: u64,
}

impl Opened {
    /// Moves the file to the lowest free descriptor from `min` on; unchanged if there is none.
    pub(super) fn moved_above(self, min: i32) -> Self {
        let fd = os::moved_above(self.fd, min);
        Self { fd, ..self }
    }

    /// Device and number.
    pub(super) fn inode(&self) -> (u64, u64) {
        self.inode
    }

    /// Whether both are the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
    }
}

impl Folder {
    /// Waits until the names in this folder are on the disk, and the folder's own name.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        os::sync_folder(&self.fd)?;
        // A folder that this user cannot read was made by another user, before.
        match os::open_folder(&self.path.join("..")) {
            Ok(around) => os::sync_folder(around),
            Err(_) => Ok(()),
        }
    }

    /// Opens the folder. With `create`, makes it, for this user or for the group of the folder
    /// around it, and its parents as any program does; in a work tree, git ignores the folder but not the parents. `None` if it is not there and
    /// is not to be made. In a `private` one, no other user may write, unless it is a group's.
    #[cfg(test)]
    pub(super) fn open(
        path: &Path,
        create: bool,
        allow_network: bool,
        private: bool,
    ) -> Result<Option<Self>, StoreError> {
        Self::open_named(path, create, allow_network, private, Named::ByCaller)
    }

    /// Opens the folder; `named` says whether the caller named it.
    pub(super) fn open_named(
        path: &Path,
        create: bool,
        allow_network: bool,
        private: bool,
        named: Named,
    ) -> Result<Option<Self>, StoreError> {
        let opened = open_own_folder(path, named, create);
        let opened = opened.map_err(|(at, why)| refused(&at, LOCKS, why))?;
        let Some((fd, facts)) = opened else {
            return Ok(None);
        };
        // A group's folder is the agreement of its members; any other right of others is an oversight.
        let is_groups = facts.sharing() == Sharing::Group;
        if private && facts.others_may_write() && !is_groups {
            return Err(distrusted(path, &Distrust::OthersMayWrite));
        }
        let remote = match os::remote_kind_of(&fd) {
            Ok(remote) => remote,
            // Not a word of the file system itself.
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                Some("a file system that the system does not name (is a seccomp filter in place?)")
            }
            Err(errno) => return Err(fault(path, "looking at the file system", errno)),
        };
        refuse_remote(path, remote, allow_network)?;
        Ok(Some(Self {
            fd,
            path: path.to_owned(),
            local: remote.is_none(),
            shared: facts.all_may_write(),
            owner: facts.owner_of_new(),
            sharing: if private && !is_groups {
                Sharing::Owner
            } else {
                facts.sharing()
            },
            readable: if is_groups {
                facts.all_may_look()
            } else {
                facts.others_may_look()
            },
            facts,
            root: None,
        }))
    }

    /// Refuses a folder of records that another user may have prepared in the folder around it, which the
    /// caller names.
    pub(super) fn check_within(&self, around: &Facts) -> Result<(), StoreError> {
        trust::within(around, &self.facts).map_err(|why| distrusted(&self.path, &why))
    }

    /// Makes a folder that is not for locks alone, so git does not ignore it.
    pub(super) fn make_place(path: &Path) -> Result<(), StoreError> {
        make_folder(path).map_err(|(path, errno)| fault(&path, "making the lock folder", errno))
    }

    /// Opens a folder of ours inside this one. With `create`, makes it, for the same users and ignored by
    /// git. `None` if it is not there and is not to be made.
    pub(super) fn open_below(&self, name: &str, create: bool) -> Result<Option<Self>, StoreError> {
        let path = self.path_of(name);
        let around = (&self.fd, &self.facts);
        let opened =
            open_own_folder_in(around, name, create).map_err(|why| refused(&path, BESIDE, why))?;
        let Some(((fd, facts), is_new)) = opened else {
            return Ok(None);
        };
        if facts.all_may_write() {
            return Err(self.unsafe_file(name, &Distrust::Everybodys));
        }
        let folder = Self {
            fd,
            path,
            local: self.local,
            shared: false,
            owner: facts.owner_of_new(),
            sharing: facts.sharing(),
            readable: facts.others_may_look(),
            facts,
            root: self.root.clone(),
        };
        if is_new {
            folder.ignore_all()?;
        }
        Ok(Some(folder))
    }

    /// Tells git to ignore everything in this folder, unless the folder has a rule for git already.
    pub(super) fn ignore_all(&self) -> Result<(), StoreError> {
        ignore_all(self.fd()).map_err(|errno| {
            let path = self.path_of(IGNORE_FILE);
            fault(&path, "keeping the locks out of git", errno)
        })
    }

    pub(super) fn fd(&self) -> BorrowedDescriptor<'_> {
        os::borrow(&self.fd)
    }

    /// Whether the folder's path still leads to it. It does not if the folder was removed, if it or a
    /// folder above it was renamed, or if something was mounted over it. Then the next caller finds or
    /// makes another folder there, and a lock in this one excludes no caller any more.
    ///
    /// If the path cannot be looked at (a folder above may not be searched any more), the folder is not
    /// known to be elsewhere. A relative path is valid only from where it was opened, so it is not
    /// followed again.
    ///
    /// A program with another root sees another folder at the path, or none, and other processes still see this one.
    /// So it looks from the root that it had.
    pub(super) fn is_in_place(&self) -> bool {
        if os::FOLDERS_MOVE && self.path.is_absolute() {
            let is_it = |facts: &Facts| facts.inode() == self.facts.inode();
            let mut seen = os::facts_of(&self.path);
            if !seen.as_ref().is_ok_and(is_it)
                && let Some(root) = self.root.as_ref().filter(|root| root.is_left())
            {
                seen = root.facts_of(&self.path);
            }
            match seen {
                Ok(facts) => return is_it(&facts),
                Err(Errno::NOENT | Errno::NOTDIR) => return false,
                Err(_) => {}
            }
        }
        os::facts(&self.fd).map_or(true, |facts| facts.names() > 0)
    }

    /// The path by which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Opens a lock file once more, for changes. `None` if its name no longer leads to this file.
    pub(super) fn open_again(
        &self,
        file: &str,
        opened: &Opened,
    ) -> Result<Option<Opened>, StoreError> {
        let again = self.open_file(file, Access::Write)?;
        Ok(again.filter(|again| again.is_same(opened)))
    }

    /// Opens one lock file. `None` if it is not there and is not to be made.
    pub(super) fn open_file(
        &self,
        file: &str,
        access: Access,
    ) -> Result<Option<Opened>, StoreError> {
        match self.open_unseen(file, access)? {
            Some(fd) => self.seen(file, access, fd).map(|(opened, _)| Some(opened)),
            None => Ok(None),
        }
    }

    /// Opens a lock file of which nothing is known before the caller has it [`seen`](Self::seen).
    pub(super) fn open_unseen(
        &self,
        file: &str,
        access: Access,
    ) -> Result<Option<Descriptor>, StoreError> {
        let how = match access {
            Access::Read => Open::Read,
            Access::Write => Open::Change,
            Access::Create => Open::Create,
        };
        let path = || self.path_of(file);
        match open_or_make(&self.fd, file, how, self.sharing, self.owner) {
            // With the right to it, it would be refused for what it is.
            Err(Errno::ACCESS) if self.is_no_file(file) => {
                Err(self.unsafe_file(file, &Distrust::NoFile))
            }
            Err(Errno::ACCESS) if self.is_kept_from_group(file) => Err(StoreError::Permission {
                place: path().display().to_string(),
                doing: "its owner keeps it from the group; `chmod 660` it, by its owner or root",
            }),
            Err(Errno::ACCESS) if access != Access::Read && self.may_read(file) => {
                Err(StoreError::Permission {
                    place: path().display().to_string(),
                    doing: "this user may read the lock and not write to it; each holder writes down who it is, a shared one too",
                })
            }
            Err(Errno::NOENT) if access != Access::Create => Ok(None),
            other => other
                .map(Some)
                .map_err(|errno| match Distrust::of_file(errno) {
                    Some(why) => self.unsafe_file(file, &why),
                    None => fault(&path(), "opening the lock", errno),
                }),
        }
    }

    /// Looks at a file that was opened, and refuses one that cannot be trusted.
    pub(super) fn seen(
        &self,
        file: &str,
        access: Access,
        fd: Descriptor,
    ) -> Result<(Opened, Facts), StoreError> {
        let path = || self.path_of(file);
        let facts = os::facts(&fd).map_err(|errno| fault(&path(), "looking at the lock", errno))?;
        trust::file(&facts, self.shared).map_err(|why| self.unsafe_file(file, &why))?;
        if access == Access::Create && !facts.is_shared(self.sharing) && facts.is_ours() {
            // A strict umask took rights to the file that we made, or it was made before it was the group's.
            os::share(&fd, self.sharing)
                .map_err(|errno| fault(&path(), "opening the lock", errno))?;
        }
        let opened = Opened {
            fd,
            inode: facts.inode(),
            length: facts.size(),
        };
        Ok((opened, facts))
    }

    /// Whether this user may read what stands at the name.
    fn may_read(&self, file: &str) -> bool {
        open_or_make(&self.fd, file, Open::Read, self.sharing, self.owner).is_ok()
    }

    /// Whether something else than a file stands at the name.
    fn is_no_file(&self, file: &str) -> bool {
        os::facts_at(&self.fd, file).is_ok_and(|facts| !facts.is_regular())
    }

    /// Whether a file in a folder of a group lacks the rights that the group has to the others.
    fn is_kept_from_group(&self, file: &str) -> bool {
        self.sharing != Sharing::Owner
            && os::facts_at(&self.fd, file).is_ok_and(|facts| !facts.is_shared(self.sharing))
    }

    /// The length of the opened file, if the name still leads to it. Asked with the guard held: from
    /// then on no caller that heeds the guard removes the file or changes it.
    pub(super) fn length_of(&self, file: &str, opened: &Opened) -> Result<Option<u64>, StoreError> {
        let failed = |errno| fault(&self.path_of(file), "looking at the lock again", errno);
        Ok(match self.look_for(file, opened).map_err(failed)? {
            Some(facts) => (facts.inode() == opened.inode).then(|| facts.size()),
            None => None,
        })
    }

    /// Looks at what the name of an opened file leads to. `None` if nothing has the name.
    ///
    /// A process that has given up its rights (`setuid`) may not search the folder any more. What it has open tells
    /// whether a name is left to it: a file that was removed or replaced has none. Only a file that another program
    /// has renamed looks as before.
    pub(super) fn look_for(&self, file: &str, opened: &Opened) -> Result<Option<Facts>, Errno> {
        match os::facts_at(&self.fd, file) {
            Ok(facts) => Ok(Some(facts)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::ACCESS) if os::COUNTS_NAMES => {
                os::facts(&opened.fd).map(|facts| (facts.names() > 0).then_some(facts))
            }
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn unsafe_file(&self, file: &str, why: &Distrust) -> StoreError {
        distrusted(&self.path_of(file), why)
    }
}

fn distrusted(place: &Path, why: &Distrust) -> StoreError {
    StoreError::Unsafe {
        place: place.display().to_string(),
        why: why.why(Contents::Locks),
    }
}

/// What is done with a folder while it is made, and while it is opened.
type Doing = [&'static str; 2];

const LOCKS: Doing = ["making the lock folder", "opening the lock folder"];
const BESIDE: Doing = [
    "making the folder beside the locks",
    "opening the folder beside the locks",
];

fn refused(place: &Path, [making, opening]: Doing, why: OpenRefusal) -> StoreError {
    match why {
        OpenRefusal::Distrust(why) => distrusted(place, &why),
        OpenRefusal::Making(errno) => fault(place, making, errno),
        OpenRefusal::Opening(errno) => fault(place, opening, errno),
    }
}

/// Refuses to make a folder that no caller named, where the folder around it is another user's. For `survey`.
#[cfg(unix)]
pub(super) fn refuse_above(path: &Path, named: Named) -> Result<(), StoreError> {
    trust::above(path, named).map_err(|(above, why)| distrusted(&above, &why))
}

/// Whether other users may make files in a folder, and none of them may remove another one's.
pub(super) fn is_open_to_others(folder: &Facts) -> bool {
    folder.all_may_write() || trust::is_open_to_members(folder)
}

/// Refuses a file system that other machines reach as well, unless the caller says that its locks work.
fn refuse_remote(path: &Path, kind: Option<&str>, allow_network: bool) -> Result<(), StoreError> {
    match kind {
        Some(kind) if !allow_network => Err(StoreError::FileSystem {
            place: path.display().to_string(),
            kind: kind.to_owned(),
            why: "where locks may not hold between machines, or not at all; choose a local \
                  folder, a store made for many machines, or say --allow-network-fs if you \
                  know that its locks work",
        }),
        Some(_) | None => Ok(()),
    }
}

/// Maps a system error to the store's own; two kinds of error have a meaning of their own.
pub(super) fn fault(path: &Path, doing: &'static str, errno: Errno) -> StoreError {
    let place = path.display().to_string();
    match errno {
        Errno::ACCESS | Errno::PERM => StoreError::Permission { place, doing },
        // A change of permissions would not help, and the message has to say so.
        Errno::ROFS => StoreError::Permission {
            place,
            doing: "its file system is read-only",
        },
        Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS => StoreError::FileSystem {
            place,
            kind: "a file system without working locks".to_owned(),
            why: "so nothing kept there can exclude anybody; choose a local folder",
        },
        errno => StoreError::Io {
            place,
            doing,
            source: errno.into(),
        },
    }
}

/// Maps an error that comes from std, as [`fault`] does.
pub(super) fn io_fault(path: &Path, doing: &'static str, error: std::io::Error) -> StoreError {
    match error.raw_os_error() {
        Some(raw) => fault(path, doing, Errno::from_raw_os_error(raw)),
        None => StoreError::Io {
            place: path.display().to_string(),
            doing,
            source: error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_refused_unless_it_is_allowed_and_a_local_one_never() {
        for (kind, allow, is_refused) in [
            (Some("nfs"), false, true),
            (Some("nfs"), true, false),
            (None, false, false),
            (None, true, false),
        ] {
            let answer = refuse_remote(Path::new("locks"), kind, allow);
            let refused =
                matches!(&answer, Err(StoreError::FileSystem { kind, .. }) if kind == "nfs");
            assert_eq!(refused, is_refused, "{kind:?}, {allow}: {answer:?}");
            assert_eq!(answer.is_err(), is_refused, "{kind:?}, {allow}: {answer:?}");
        }
    }

    // A folder that a process has open cannot be removed on Windows.
    #[cfg(unix)]
    #[test]
    fn in_a_removed_folder_there_is_no_file_and_making_one_is_an_error() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(scratch.path(), false, false, false);
        let folder = folder.expect("a good folder").expect("it is there");
        assert!(folder.is_in_place());
        scratch.close().expect("its removal");
        assert!(!folder.is_in_place());
        for access in [Access::Read, Access::Write] {
            let opened = folder.open_file("a.tenure", access);
            assert!(matches!(opened, Ok(None)), "{access:?}: {opened:?}");
        }
        let made = folder.open_file("a.tenure", Access::Create);
        assert!(matches!(made, Err(StoreError::Io { .. })), "{made:?}");
    }

    /// A relative path leads elsewhere from another working directory.
    #[cfg(unix)]
    #[test]
    fn a_folder_that_was_opened_by_a_relative_path_is_in_place_until_it_is_removed() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(scratch.path(), false, false, false);
        let mut folder = folder.expect("a good folder").expect("it is there");
        folder.path = PathBuf::from("a/path/that/leads/nowhere/from/here");
        assert!(folder.is_in_place());
        scratch.close().expect("its removal");
        assert!(!folder.is_in_place());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_in_place_as_long_as_its_path_leads_to_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let [above, other] = ["above", "other"].map(|name| scratch.path().join(name));
        let path = above.join("locks");
        let rename = |from: &Path, to: &Path| std::fs::rename(from, to).expect("another name");
        let latest = Latest::default();
        assert_eq!(latest.moves(), 0, "none was opened");
        let folder = Folder::open(&path, true, false, false);
        let folder = latest.put(folder.expect("a good folder").expect("it was made"));
        let renamed = above.join("locks.old");
        for (from, to) in [(&path, &renamed), (&above, &other)] {
            assert_eq!((folder.is_in_place(), latest.moves()), (true, 1));
            rename(from, to);
            assert!(!folder.is_in_place(), "its path leads nowhere");
            std::fs::create_dir_all(&path).expect("another folder");
            assert!(!folder.is_in_place(), "its path leads to another one");
            assert_eq!(latest.moves(), 2);
            std::fs::remove_dir(&path).expect("an empty folder");
            if from == &above {
                std::fs::remove_dir(&above).expect("an empty folder");
            }
            rename(to, from);
        }
        rename(&path, &renamed);
        std::os::unix::fs::symlink(&path, &path).expect("a link");
        assert!(
            folder.is_in_place(),
            "a path that cannot be followed says nothing"
        );
    }

    #[test]
    fn of_the_folders_that_were_opened_the_last_one_is_worked_with() {
        let scratch = tempfile::tempdir().expect("a folder");
        let latest = Latest::default();
        assert!(latest.get().is_none());
        for name in ["one", "two", "three"] {
            let path = scratch.path().join(name);
            let folder = Folder::open(&path, true, false, false);
            let folder = folder.expect("a good folder").expect("it was made");
            assert_eq!(latest.put(folder).path, path);
            assert_eq!(latest.get().map(|folder| &folder.path), Some(&path));
        }
    }
}
