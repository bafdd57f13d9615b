//! Makes the folders and files of tenure: for this user alone, or for the group of the folder around them.
//! They have rights that no umask adds to or takes from. Inside a git work tree, git is told not to commit them.
//!
//! The mode of a folder says for whom it is ([`Facts::sharing`](crate::os::Facts::sharing)). In a setgid folder
//! that its group may write to, new files and folders are the group's too. Everywhere else they are this user's
//! alone.
//!
//! What is made for a group gets its name when it has its rights. So a process that dies in between locks no
//! member of the group out.
//!
//! Only a folder that is made here gets a `.gitignore`. One that was there before may be meant for
//! files that its user wants to commit, and those would silently stay out of every commit.

use crate::os::{self, AsDescriptor, Descriptor, Errno, Facts, Open, Sharing};
use crate::trust::{self, Named, OpenRefusal};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What marks the root of a work tree: a folder, or in linked work trees and submodules a file.
pub const GIT: &str = ".git";

/// The file by which git is told what to leave alone in a folder.
pub const IGNORE_FILE: &str = ".gitignore";

/// How often a file is looked for and made by turns, before that is an error. Another process would have to
/// remove it each time in between.
const TURNS_MAX: u32 = 64;

/// Opens a file in a folder for a change, and makes it if it is not there.
///
/// `owner` is the other user to whom belongs what root makes there ([`Facts::owner_of_new`]).
///
/// Where it is made for a group or another user, it is never opened in the way that could make it: in a sticky folder, Linux
/// refuses that for another user's file (`fs.protected_regular`), and only a file that this very call has made is given
/// away. The user may have put any file of root's under that name.
///
/// # Crash safety
/// For others it is made under a private name, given its rights, and renamed without replacing. Death before
/// that leaves an empty file under a private name. If the file system has no such rename, the file is made under
/// its own name. Death before it has its rights then leaves a file that its owner's next call mends.
pub fn open_or_make(
    folder: impl AsDescriptor,
    name: &str,
    how: Open,
    sharing: Sharing,
    owner: Option<u32>,
) -> Result<Descriptor, Errno> {
    if sharing == Sharing::Owner && owner.is_none() {
        return os::open_file(folder, name, how);
    }
    let there = match how {
        Open::Create => Open::Change,
        Open::Append => Open::Extend,
        other => other,
    };
    for _ in 0..TURNS_MAX {
        match os::open_file(&folder, name, there) {
            Err(Errno::NOENT) if there != how => make_file(&folder, name, sharing, owner)?,
            other => return other,
        }
    }
    Err(Errno::NOENT)
}

/// Makes an empty file, unless something has its name.
fn make_file(
    folder: impl AsDescriptor,
    name: &str,
    sharing: Sharing,
    owner: Option<u32>,
) -> Result<(), Errno> {
    let new = new_name(name);
    let file = os::open_file(&folder, &new, Open::New)?;
    let made = os::share_new(&file, sharing, owner)
        .and_then(|()| os::rename_new(&folder, &new, &folder, name));
    match made {
        Ok(()) => return Ok(()),
        Err(_) => {
            let _ = os::remove(&folder, &new);
        }
    }
    match made {
        Err(Errno::INVAL | Errno::NOSYS) => match os::open_file(&folder, name, Open::New) {
            Ok(file) => os::share_new(&file, sharing, owner),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        },
        // If another process has made it meanwhile, that is as good.
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Gives a file in a folder this content: readers find the old content or the new one, whole. The content is written under a
/// private name first. `finish` gives the file what else it needs before it gets its name: its rights, or its place on disk.
pub fn replace(
    folder: &Descriptor,
    (new, name): (&str, &str),
    bytes: &[u8],
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = File::from(os::open_file(folder, new, Open::New)?);
    let written = file.write_all(bytes).and_then(|()| finish(&file));
    let named = written.and_then(|()| Ok(os::rename(folder, new, folder, name)?));
    named.inspect_err(|_| {
        let _ = os::remove(folder, new);
    })
}

/// A private name for what will get this one.
pub fn new_name(name: &str) -> String {
    let mut bytes = [0; 8];
    // Without randomness the name may be taken, which is an error as any other.
    let _ = os::random(&mut bytes);
    format!(".{name}.{:016x}.new", u64::from_ne_bytes(bytes))
}

/// Makes a folder for this user alone, or for the group of the folder that is there. Parents that are missing are made as
/// any program makes them, and never so that others may write in them: they are not tenure's. The error names the one
/// that could not be made.
pub fn make_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    make_all(path, os::make_folder)
}

/// Makes what is missing of a path whose last folder is made in this way.
fn make_all(path: &Path, make: fn(&Path) -> Result<(), Errno>) -> Result<(), (PathBuf, Errno)> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
        .collect();
    for folder in missing.into_iter().rev() {
        let make = if folder == path {
            make
        } else {
            os::make_parent
        };
        match make_one(folder, make) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err((folder.to_owned(), errno)),
        }
    }
    Ok(())
}

/// Whether [`make_folder`] could make a folder that is not there, with those above it. The error names what
/// prevents that. Nothing is made.
#[cfg(unix)]
pub fn could_make_folder(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    for folder in path.ancestors() {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        if folder.is_dir() {
            return os::open_folder(folder)
                .and_then(|fd| os::may_write_in(&fd))
                .map_err(|errno| (folder.to_owned(), errno.into()));
        }
        // A name that leads to no folder keeps one from being made: a file, or a link that leads nowhere.
        if folder.symlink_metadata().is_ok() {
            let why = "a file, or a link that leads to no folder, is in the way";
            let kind = io::ErrorKind::NotADirectory;
            return Err((folder.to_owned(), io::Error::new(kind, why)));
        }
    }
    Err((path.to_owned(), io::ErrorKind::NotFound.into()))
}

fn make_one(path: &Path, make: fn(&Path) -> Result<(), Errno>) -> Result<(), Errno> {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) | None => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if is_for_others(above) => make_folder_in(&os::open_folder(above)?, name),
        Some(_) | None => make(path),
    }
}

/// Whether what is made in a folder is not for this user alone.
fn is_for_others(folder: &Path) -> bool {
    os::facts_of(folder)
        .is_ok_and(|facts| facts.sharing() == Sharing::Group || facts.owner_of_new().is_some())
}

/// Makes a folder inside of another one, for the same users.
pub(crate) fn make_folder_in(folder: &Descriptor, name: &str) -> Result<(), Errno> {
    let around = os::facts(folder)?;
    if around.sharing() == Sharing::Group {
        return make_whole(folder, name, &around, false);
    }
    os::make_folder_in(folder, name)?;
    if let Some(owner) = around.owner_of_new()
        && let Ok(made) = os::open_folder_in(folder, name)
    {
        os::give_folder(owner, &made);
    }
    Ok(())
}

/// Makes a folder that will hold nothing but files of tenure, and its parent. Inside a git work tree the
/// folder tells git to leave it alone.
///
/// # Crash safety
/// The folder gets its name when its `.gitignore` is in it, so a process that finds the folder finds both.
/// A death before that leaves a folder with a private name, which git does not commit: it is empty, or
/// ignores itself. If the file system has no rename that does not replace, a death between the two steps
/// leaves the folder without the file.
pub fn make_own_folder(path: &Path) -> Result<(), (PathBuf, Errno)> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            make_all(parent, os::make_parent)?;
            parent
        }
        Some(_) | None => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if is_in_work_tree(parent) => os::open_folder(parent)
            .and_then(|parent| make_ignored(&parent, name))
            .map_err(|errno| (path.to_owned(), errno)),
        Some(_) | None => make_folder(path),
    }
}

/// Opens a folder of tenure's by its path. With `create`, makes it first ([`make_own_folder`]) where nothing is. `None` if it
/// is not there and is not to be made. The error names what is refused.
pub fn open_own_folder(
    path: &Path,
    named: Named,
    create: bool,
) -> Result<Option<trust::OpenFolder>, (PathBuf, OpenRefusal)> {
    let opened = match trust::folder(path, named) {
        Err(OpenRefusal::Opening(Errno::NOENT)) if !create => return Ok(None),
        Err(OpenRefusal::Opening(Errno::NOENT)) => {
            trust::above(path, named).map_err(|(above, why)| (above, why.into()))?;
            make_own_folder(path).map_err(|(at, errno)| (at, OpenRefusal::Making(errno)))?;
            trust::folder(path, named)
        }
        opened => opened,
    };
    opened.map(Some).map_err(|why| (path.to_owned(), why))
}

/// Opens a folder inside of another one. With `create`, makes it first (`make_folder_in`) where nothing is, and says so.
/// `None` if it is not there and is not to be made.
pub fn open_own_folder_in(
    around: (&Descriptor, &Facts),
    name: &str,
    create: bool,
) -> Result<Option<(trust::OpenFolder, bool)>, OpenRefusal> {
    match trust::folder_in(around, name) {
        Err(OpenRefusal::Opening(Errno::NOENT)) if !create => Ok(None),
        Err(OpenRefusal::Opening(Errno::NOENT)) => match make_folder_in(around.0, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(Some((trust::folder_in(around, name)?, true))),
            Err(errno) => Err(OpenRefusal::Making(errno)),
        },
        opened => Ok(Some((opened?, false))),
    }
}

/// Makes such a folder in a folder that is open, and was opened by this path.
pub fn make_own_folder_in(folder: &Descriptor, at: &Path, name: &str) -> Result<(), Errno> {
    if is_in_work_tree(at) {
        return make_ignored(folder, name);
    }
    match make_folder_in(folder, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The root of the work tree in which a folder lies, by its path without links. `None` for git's own folder, of
/// which git commits nothing.
pub fn work_tree(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    for folder in folder.ancestors() {
        if folder.file_name().is_some_and(|name| name == GIT) {
            return None;
        }
        if folder.join(GIT).symlink_metadata().is_ok() {
            return Some(folder.to_owned());
        }
    }
    None
}

/// Whether git looks at what lies in this folder, which exists.
fn is_in_work_tree(folder: &Path) -> bool {
    work_tree(folder).is_some()
}

fn make_ignored(parent: &Descriptor, name: &str) -> Result<(), Errno> {
    let around = os::facts(parent)?;
    if around.sharing() == Sharing::Group {
        return make_whole(parent, name, &around, true);
    }
    make_under_private_name(parent, name, &|folder| ignore_all(folder))
}

/// Makes a folder for the users of the one around it. In it, git is told to leave it alone if `ignored` says so.
fn make_whole(parent: &Descriptor, name: &str, around: &Facts, ignored: bool) -> Result<(), Errno> {
    make_under_private_name(parent, name, &|folder| {
        os::share_folder(folder, around)?;
        if ignored { ignore_all(folder) } else { Ok(()) }
    })
}

/// Makes a folder that gets its name when it is finished.
pub(crate) fn make_under_private_name(
    parent: &Descriptor,
    name: &str,
    finish: &dyn Fn(&Descriptor) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let new = new_name(name);
    let owner = os::facts(parent)?.owner_of_new();
    let finish = |folder: Descriptor| {
        if let Some(owner) = owner {
            os::give_folder(owner, &folder);
        }
        finish(&folder)
    };
    os::make_folder_in(parent, &new)?;
    let finished = os::open_folder_in(parent, &new).and_then(finish);
    match finished.and_then(|()| os::rename_new(parent, &new, parent, name)) {
        Ok(()) => return Ok(()),
        // If another process has made it meanwhile, that is as good.
        Err(Errno::EXIST) => {
            withdraw(parent, &new);
            return Ok(());
        }
        Err(_) => withdraw(parent, &new),
    }
    match os::make_folder_in(parent, name) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    let finished = os::open_folder_in(parent, name).and_then(finish);
    finished.inspect_err(|_| {
        // If another process keeps something in it by now, it stays.
        let _ = os::remove_folder(parent, name);
    })
}

/// Takes a folder away that no other process knows.
fn withdraw(parent: &Descriptor, name: &str) {
    if let Ok(folder) = os::open_folder_in(parent, name) {
        let _ = os::remove(&folder, IGNORE_FILE);
    }
    let _ = os::remove_folder(parent, name);
}

/// Tells git to leave everything in a folder alone, unless it was told something already.
pub fn ignore_all(folder: impl AsDescriptor) -> Result<(), Errno> {
    match os::open_file(&folder, IGNORE_FILE, Open::New) {
        Ok(file) => os::facts(&folder)
            .and_then(|facts| os::share_new(&file, facts.sharing(), facts.owner_of_new()))
            .and_then(|()| os::write(&file, b"*\n"))
            .map(|_| ())
            .inspect_err(|_| {
                // An empty file would tell git nothing, and no later call would look again.
                let _ = os::remove(&folder, IGNORE_FILE);
            }),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ignores(folder: &Path) -> bool {
        fs::read_to_string(folder.join(IGNORE_FILE)).is_ok_and(|text| text == "*\n")
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .expect("a folder")
            .map(|item| {
                item.expect("an item")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_that_is_made_in_a_work_tree_ignores_itself_and_its_parents_do_not() {
        let scratch = tempfile::tempdir().expect("a folder");
        let tree = scratch.path().join("tree");
        fs::create_dir_all(tree.join(".git")).expect("a work tree");
        let linked = scratch.path().join("linked");
        fs::create_dir(&linked).expect("a folder");
        fs::write(linked.join(".git"), "gitdir: elsewhere\n").expect("a linked work tree");
        for tree in [&tree, &linked] {
            make_own_folder(&tree.join("state/locks")).expect("a folder");
            assert!(ignores(&tree.join("state/locks")));
            assert_eq!(
                names(&tree.join("state")),
                ["locks"],
                "nothing is left beside it"
            );
            assert_eq!(names(tree), [".git", "state"]);
        }
    }

    #[test]
    fn outside_and_in_gits_own_folder_nothing_is_told_to_git() {
        let scratch = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(scratch.path().join("tree/.git")).expect("a work tree");
        for place in ["a/locks", "tree/.git/tenure/locks"] {
            let place = scratch.path().join(place);
            make_own_folder(&place).expect("a folder");
            assert_eq!(names(&place), [""; 0]);
        }
    }

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let scratch = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(scratch.path().join(".git")).expect("a work tree");
        let state = scratch.path().join("state");
        fs::create_dir(&state).expect("a folder that was there");
        make_own_folder(&state).expect("it is there");
        assert_eq!(names(&state), [""; 0]);
        assert_eq!(names(scratch.path()), [".git", "state"]);
    }
}
