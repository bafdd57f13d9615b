//! Opens files and folders, and says why one cannot be trusted. The lock folder, the audit, a fence's guard, the
//! configuration and a repository ask here.
//!
//! A place that the caller names (by a flag, a variable, or in a program of the caller's) is the caller's
//! own decision. Another user may have planted a place that was found (a configuration on the way up, a
//! folder that it names, a folder below the home folder). So it has to belong to the caller or to root, who
//! can do everything anyhow; see decision 0023.
//!
//! What was opened is judged, by its descriptor, and never a name before it is opened.
//!
//! On Windows owners are not looked at, as with lock files.

use crate::os::{self, Descriptor, Errno, Facts, Sharing};
use std::path::{Path, PathBuf};

/// Whether the caller said where something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Named {
    /// The caller did, which is consent to whatever is there.
    #[default]
    ByCaller,
    /// No caller did: a search or a default led there.
    ByNobody,
}

/// The owner of a configuration that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The caller, or root.
    Ours,
    /// The user who became root by sudo.
    SudoUser,
    /// Another user.
    Stranger,
}

/// The owner of an opened file.
pub fn whose(facts: &Facts) -> Whose {
    if facts.is_ours() || facts.is_roots() {
        return Whose::Ours;
    }
    let sudo_user = || std::env::var("SUDO_UID").ok()?.parse::<u32>().ok();
    if os::is_root() && sudo_user().is_some_and(|user| facts.is_of(user)) {
        Whose::SudoUser
    } else {
        Whose::Stranger
    }
}

/// What is kept in a folder, for the words of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Locks.
    Locks,
    /// An audit.
    Audit,
    /// The mark of a fence.
    Guard,
    /// Settings of other programs.
    Settings,
}

/// Why a file or a folder cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distrust {
    /// Another user's folder, and no caller named it. Its owner could exchange files that the caller made there,
    /// and could not use them.
    Unnamed(String),
    /// A link of another user, which is not followed.
    StrangersLink(String),
    /// Every user may replace what another one has made in the folder.
    Replaceable,
    /// Others than the owner may write in a folder, or to a file, that is for one user.
    OthersMayWrite,
    /// Every user may write in a folder that is for those of the folder around it.
    Everybodys,
    /// Another user's, in a folder where every user may create files.
    Planted,
    /// Another user's folder, in the sticky folder of a group.
    Unsticky,
    /// Something else than a folder, or a link to one.
    NoFolder,
    /// A link in place of a file.
    Link,
    /// Something else than a file.
    NoFile,
    /// A file with a second name.
    SecondName,
    /// Another user's.
    Strangers,
    /// A file that names a user, and belongs to another one.
    Misnamed,
}

impl Distrust {
    /// What stands at a name, by the error of opening a file there and no link.
    pub fn of_file(errno: Errno) -> Option<Self> {
        match errno {
            Errno::LOOP => Some(Self::Link),
            Errno::NXIO | Errno::ISDIR => Some(Self::NoFile),
            _ => None,
        }
    }

    /// What stands at a name, by the error of opening a folder there and no link.
    pub fn of_folder(errno: Errno) -> Option<Self> {
        matches!(errno, Errno::LOOP | Errno::NOTDIR).then_some(Self::NoFolder)
    }

    /// The reason as text, and what helps.
    pub fn why(&self, kept: Contents) -> String {
        let (what, name) = match kept {
            Contents::Locks => ("a lock", "the lock folder with --dir"),
            Contents::Audit => ("the audit", "it with --audit-dir"),
            Contents::Guard => ("the guard", "it"),
            Contents::Settings => ("a file", "it"),
        };
        let unnamed = format!("and no caller named it; name {name} if it is to be used");
        let text = match self {
            Self::Unnamed(owner) => return format!("it belongs to {owner}, {unnamed}"),
            Self::StrangersLink(owner) => return format!("the link belongs to {owner}, {unnamed}"),
            Self::Replaceable => {
                return format!(
                    "everybody may write in it and it has no sticky bit, so anybody could replace \
                     {what}; `chmod o-w` it or choose another folder"
                );
            }
            Self::OthersMayWrite if kept == Contents::Locks => {
                "others may write in it, so they could replace a lock; `chmod 700` it, share it with \
                 its group (`chmod 2770`) or choose another folder"
            }
            Self::OthersMayWrite => "others may write to it; `chmod 600` it",
            Self::Everybodys => "everybody may write in it",
            Self::Planted => {
                "it belongs to another user, in a folder where everybody may create files"
            }
            Self::Unsticky => {
                "it belongs to another user and lacks the sticky bit of the folder around it, so \
                 every member of the group could replace a file in it; `chmod +t` it"
            }
            Self::NoFolder => "it is a link or no folder",
            Self::Link => "it is a link",
            Self::NoFile => "it is not a regular file",
            Self::SecondName => "it has a second name elsewhere (a hard link)",
            Self::Strangers => "it belongs to another user",
            Self::Misnamed => "it does not belong to the user in its name",
        };
        text.to_owned()
    }
}

/// Why a folder was not opened.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenRefusal {
    /// What was opened is not trusted.
    Distrust(Distrust),
    /// Nothing was there, and no folder could be made.
    Making(Errno),
    /// The system opened nothing.
    Opening(Errno),
}

impl From<Distrust> for OpenRefusal {
    fn from(why: Distrust) -> Self {
        Self::Distrust(why)
    }
}

impl From<Errno> for OpenRefusal {
    fn from(errno: Errno) -> Self {
        Self::Opening(errno)
    }
}

/// A file or a folder that was opened by its path.
#[derive(Debug)]
pub struct OpenPath {
    /// What was opened.
    pub fd: Descriptor,
    /// What the system says of it.
    pub facts: Facts,
    /// The link that leads there. Its owner decides where to.
    pub link: Option<Facts>,
}

impl OpenPath {
    /// Opens whatever stands at a path, for reading. A link there is followed if it is believed.
    pub fn at(path: &Path, believes: impl Fn(&Facts) -> bool) -> Result<Self, OpenRefusal> {
        Self::by(path, believes, |links| os::open_by_path(path, links))
    }

    /// Opens a folder. A link to it that no caller named counts as its owner's word.
    pub fn folder(path: &Path, named: Named) -> Result<Self, OpenRefusal> {
        let is_named = named == Named::ByCaller;
        let believes = |link: &Facts| is_named || is_for_caller(link);
        Self::by(path, believes, |links| {
            if links || is_named {
                os::open_folder(path)
            } else {
                os::open_folder_itself(path)
            }
        })
    }

    fn by(
        path: &Path,
        believes: impl Fn(&Facts) -> bool,
        open: impl Fn(bool) -> Result<Descriptor, Errno>,
    ) -> Result<Self, OpenRefusal> {
        let (fd, link) = match open(false) {
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                // Where the name leads to no link by now, another process has changed it.
                let link = os::link_at(path)?.ok_or(errno)?;
                if !believes(&link) {
                    return Err(Distrust::StrangersLink(link.owner_text()).into());
                }
                (open(true)?, Some(link))
            }
            opened => (opened?, None),
        };
        let facts = os::facts(&fd)?;
        Ok(Self { fd, facts, link })
    }
}

/// A folder that was opened, and what the system said of it then.
pub type OpenFolder = (Descriptor, Facts);

/// Opens a folder by its path.
pub fn folder(path: &Path, named: Named) -> Result<OpenFolder, OpenRefusal> {
    let OpenPath { fd, facts, .. } = OpenPath::folder(path, named)?;
    judged((fd, facts), named)
}

/// Opens a folder by its path, and never through a link.
pub fn folder_itself(path: &Path, named: Named) -> Result<OpenFolder, OpenRefusal> {
    let fd = os::open_folder_itself(path)?;
    let facts = os::facts(&fd)?;
    judged((fd, facts), named)
}

/// Refuses an open folder in which another user may replace what the caller makes.
pub fn judged(opened: OpenFolder, named: Named) -> Result<OpenFolder, OpenRefusal> {
    let facts = &opened.1;
    if named == Named::ByNobody && !is_for_caller(facts) {
        Err(Distrust::Unnamed(facts.owner_text()).into())
    } else if lets_anybody_replace(facts) {
        Err(Distrust::Replaceable.into())
    } else {
        Ok(opened)
    }
}

/// Opens a folder inside of another one, never through a link.
pub fn folder_in(around: (&Descriptor, &Facts), name: &str) -> Result<OpenFolder, OpenRefusal> {
    let fd =
        os::open_folder_in(around.0, name).map_err(|errno| match Distrust::of_folder(errno) {
            Some(why) => OpenRefusal::from(why),
            None => errno.into(),
        })?;
    let facts = os::facts(&fd)?;
    let opened = judged((fd, facts), Named::ByCaller)?;
    within(around.1, &opened.1)?;
    Ok(opened)
}

/// Refuses a folder that another user may have prepared inside of one that the caller names. Its owner may replace what
/// others make in it in any case; without the sticky bit every member of the group may.
pub fn within(around: &Facts, inner: &Facts) -> Result<(), Distrust> {
    if inner.is_ours() || inner.is_roots() {
        Ok(())
    } else if around.all_may_write() {
        Err(Distrust::Planted)
    } else if is_open_to_members(around) && !inner.is_sticky() {
        Err(Distrust::Unsticky)
    } else {
        Ok(())
    }
}

/// Refuses a file that is none, and another user's where all users may create files.
pub fn record(facts: &Facts, all_may_create: bool) -> Result<(), Distrust> {
    if !facts.is_regular() {
        Err(Distrust::NoFile)
    } else if all_may_create && !facts.is_ours() {
        Err(Distrust::Planted)
    } else {
        Ok(())
    }
}

/// Refuses as [`record`], and a file with a second name: no other program gives one to a file of tenure's own.
pub fn file(facts: &Facts, all_may_create: bool) -> Result<(), Distrust> {
    record(facts, all_may_create)?;
    match facts.names() {
        0 | 1 => Ok(()),
        _ => Err(Distrust::SecondName),
    }
}

/// Refuses what is another user's. Root is no exception: a file that root made among another user's could not be changed by
/// that user.
pub fn ours(facts: &Facts) -> Result<(), Distrust> {
    facts.is_ours().then_some(()).ok_or(Distrust::Strangers)
}

/// Refuses what is another user's by a look of the standard library, and a file of which a change would not reach each name.
#[cfg(unix)]
pub fn own(facts: &std::fs::Metadata) -> Result<(), Distrust> {
    use std::os::unix::fs::MetadataExt;
    if facts.uid() != os::our_number() {
        Err(Distrust::Strangers)
    } else if facts.is_file() && facts.nlink() > 1 {
        Err(Distrust::SecondName)
    } else {
        Ok(())
    }
}

/// Refuses to make something at a path that no caller named, where the nearest folder above it that is there belongs to
/// another user. The error names that folder.
pub fn above(path: &Path, named: Named) -> Result<(), (PathBuf, Distrust)> {
    let is_there = |above: &&Path| !above.as_os_str().is_empty() && above.is_dir();
    match path.ancestors().skip(1).find(is_there) {
        Some(above) if named == Named::ByNobody => {
            match os::open_folder(above).and_then(|fd| os::facts(&fd)) {
                Ok(facts) if !is_for_caller(&facts) => {
                    Err((above.to_owned(), Distrust::Unnamed(facts.owner_text())))
                }
                // What cannot be opened cannot be written in either.
                Ok(_) | Err(_) => Ok(()),
            }
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a folder that no caller named is used: it is the caller's or root's, or made for several users.
fn is_for_caller(facts: &Facts) -> bool {
    facts.is_ours() || facts.is_roots() || facts.is_made_for_several()
}

/// Whether every user may replace what another one has made in a folder.
pub fn lets_anybody_replace(folder: &Facts) -> bool {
    folder.all_may_write() && !folder.is_sticky()
}

/// Whether the members of a group may make files in a folder, and none may remove another one's.
pub fn is_open_to_members(folder: &Facts) -> bool {
    folder.sharing() == Sharing::Group && folder.is_sticky()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::os::Open;
    use std::fmt::Debug;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// The caller, root and another user; a caller that is root is both.
    const OWNERS: [&str; 3] = ["ours", "root's", "other's"];

    fn facts(kind: u32, mode: u32, owner: &str) -> Facts {
        let caller = os::our_number();
        let user = match owner {
            "ours" => caller,
            "root's" => 0,
            _ => caller + 1,
        };
        Facts::made_up(kind | mode, user)
    }

    fn folder_of(mode: u32, owner: &str) -> Facts {
        facts(0o040_000, mode, owner)
    }

    fn word<T>(answer: Result<T, impl Debug>) -> String {
        let Err(why) = answer else {
            return "-".to_owned();
        };
        let why = format!("{why:?}").replace("Distrust(", "");
        why.trim_end_matches(')').to_owned()
    }

    fn kind_of(refusal: &str) -> String {
        refusal.split('(').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn folder_is_trusted_by_owner_mode_and_who_named_it() {
        let modes = [0o700, 0o755, 0o775, 0o2775, 0o1775, 0o777, 0o1777];
        let all = "- - - - - Replaceable -";
        let unnamed = "Unnamed Unnamed Unnamed - - Unnamed -";
        for (named, owner, expected) in [
            (Named::ByCaller, "ours", all),
            (Named::ByCaller, "root's", all),
            (Named::ByCaller, "other's", all),
            (Named::ByNobody, "ours", all),
            (Named::ByNobody, "root's", all),
            (Named::ByNobody, "other's", unnamed),
        ] {
            let fd = || os::open_folder(Path::new("/")).expect("a folder");
            let of = |mode| kind_of(&word(judged((fd(), folder_of(mode, owner)), named)));
            let found: Vec<_> = modes.map(of).into();
            assert_eq!(found.join(" "), expected, "{named:?}, {owner}");
        }
    }

    #[test]
    fn folder_inside_of_another_one_is_trusted_by_both_modes_and_its_owner() {
        for (around, inner, expected) in [
            (0o755, 0o755, "- - -"),
            (0o2775, 0o2775, "- - -"),
            (0o3775, 0o2775, "- - Unsticky"),
            (0o3775, 0o3775, "- - -"),
            (0o1777, 0o755, "- - Planted"),
            (0o1777, 0o1777, "- - Planted"),
        ] {
            let around_it = folder_of(around, "ours");
            let of = |owner| word(within(&around_it, &folder_of(inner, owner)));
            let found = OWNERS.map(of).join(" ");
            assert_eq!(found, expected, "{around:o}, {inner:o}");
        }
    }

    #[test]
    fn file_is_trusted_by_its_kind_its_names_and_its_owner() {
        let is_root = os::our_number() == 0;
        for (kind, all_may_create, expected) in [
            (0o100_000, false, "- - -"),
            (0o100_000, true, "- Planted Planted"),
            (0o010_000, false, "NoFile NoFile NoFile"),
            (0o010_000, true, "NoFile NoFile NoFile"),
            (0o040_000, true, "NoFile NoFile NoFile"),
            (0o020_000, true, "NoFile NoFile NoFile"),
        ] {
            let expected = match expected {
                "- Planted Planted" if is_root => "- - Planted",
                expected => expected,
            };
            let of = |owner| word(file(&facts(kind, 0o600, owner), all_may_create));
            assert_eq!(OWNERS.map(of).join(" "), expected, "{kind:o}");
            let of = |owner| word(record(&facts(kind, 0o600, owner), all_may_create));
            assert_eq!(OWNERS.map(of).join(" "), expected, "a record, {kind:o}");
        }
        let own = OWNERS.map(|owner| word(ours(&facts(0o100_000, 0o600, owner))));
        assert_eq!(own[0], "-");
        assert_eq!(own[1] == "-", is_root);
        assert_eq!(own[2], "Strangers");
    }

    #[test]
    fn what_stands_at_a_name_is_opened_or_refused_by_its_kind() {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir(path("folder")).expect("a folder");
        fs::create_dir(path("open")).expect("a folder");
        fs::set_permissions(path("open"), Permissions::from_mode(0o777)).expect("its mode");
        fs::write(path("file"), "").expect("a file");
        fs::write(path("twice"), "").expect("a file");
        fs::hard_link(path("twice"), path("twin")).expect("a second name");
        symlink("folder", path("to-folder")).expect("a link");
        symlink("file", path("to-file")).expect("a link");
        symlink("nothing", path("to-nothing")).expect("a link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a pipe");
        let (fd, around) = folder(scratch.path(), Named::ByCaller).expect("a good folder");
        let file_at = |name: &str| match os::open_file(&fd, name, Open::Read) {
            Ok(opened) => word(file(&os::facts(&opened).expect("facts"), true)),
            Err(errno) => {
                Distrust::of_file(errno).map_or("gone".to_owned(), |why| word(Err::<(), _>(why)))
            }
        };
        for (name, by_path, itself, inside, as_file) in [
            ("folder", "-", "-", "-", "NoFile"),
            (
                "open",
                "Replaceable",
                "Replaceable",
                "Replaceable",
                "NoFile",
            ),
            ("to-folder", "-", "no", "NoFolder", "Link"),
            ("file", "no", "no", "NoFolder", "-"),
            ("twice", "no", "no", "NoFolder", "SecondName"),
            ("pipe", "no", "no", "NoFolder", "NoFile"),
            ("to-file", "no", "no", "NoFolder", "Link"),
            ("to-nothing", "no", "no", "NoFolder", "Link"),
            ("nothing", "no", "no", "no", "gone"),
        ] {
            let known = |answer: String| {
                if answer.starts_with("Opening") {
                    "no".to_owned()
                } else {
                    answer
                }
            };
            for named in [Named::ByCaller, Named::ByNobody] {
                let path = path(name);
                assert_eq!(
                    known(word(folder(&path, named))),
                    by_path,
                    "{name} by its path"
                );
                assert_eq!(
                    known(word(folder_itself(&path, named))),
                    itself,
                    "{name} itself"
                );
            }
            let within = known(word(folder_in((&fd, &around), name)));
            assert_eq!(within, inside, "{name} in its folder");
            assert_eq!(file_at(name), as_file, "{name} as a file");
            let is_twice = name == "twice";
            for metadata in [fs::metadata(path(name)), fs::symlink_metadata(path(name))] {
                let answer = metadata.map_or("-".to_owned(), |facts| word(own(&facts)));
                assert_eq!(answer == "SecondName", is_twice, "{name} of settings");
                assert!(is_twice || answer == "-", "{name} of settings: {answer}");
            }
        }
    }
}
