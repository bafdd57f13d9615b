//! Linux and macOS. Each function is one system call, or the few that it takes on the system that
//! lacks the one.
//!
//! macOS has no watches that can be slept on together with other things here, and no process handles. A
//! caller that would sleep on one of those looks again after a pause instead.

#[cfg(not(target_os = "linux"))]
#[allow(
    unsafe_code,
    reason = "a few calls that no crate wraps for this system"
)]
pub(crate) mod darwin;

mod errno;
mod given;
#[cfg(target_os = "linux")]
mod mount;
#[allow(unsafe_code, reason = "a few calls that no crate wraps")]
mod raw;

pub use errno::error_text;
pub use given::given;
#[cfg(target_os = "linux")]
pub use mount::mount_of;
pub use raw::{group_of, session_of};

#[cfg(not(target_os = "linux"))]
use super::Mount;
use super::{Notice, Open, Sharing};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawMode, RenameFlags, Stat,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// An open file, folder, watch or process.
pub use std::os::fd::OwnedFd as Descriptor;

/// A borrowed one.
pub use std::os::fd::BorrowedFd as BorrowedDescriptor;

/// Whatever has one.
pub use std::os::fd::AsFd as AsDescriptor;

pub use rustix::io::Errno;

/// Whether two files can change places in one step.
pub const EXCHANGES: bool = true;

/// Whether a file can be replaced while a process has it open.
pub const REPLACES_OPEN_FILES: bool = true;

/// Whether files can be watched.
pub const WATCHES: bool = cfg!(target_os = "linux");

/// Whether a folder that a process has open can get another name, or another folder its name.
pub const FOLDERS_MOVE: bool = true;

/// Whether what is open tells how many names are left to it, also when the last one was removed.
pub const COUNTS_NAMES: bool = true;

/// Borrows a descriptor.
pub fn borrow(descriptor: &impl AsFd) -> BorrowedDescriptor<'_> {
    descriptor.as_fd()
}

const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// What the system says of an open file or folder, without its times: [`facts_and_time`] asks for one.
#[derive(Debug)]
pub struct Facts {
    device: u64,
    number: u64,
    /// With the kind of the file, as the system has both in one number.
    mode: RawMode,
    names: u64,
    user: u32,
    group: u32,
    size: u64,
    /// Whether this is a folder that gives what is made in it an ACL, as far as that was asked.
    gives_rights: bool,
}

impl From<&Stat> for Facts {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the fields' widths and signs differ between platforms"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            number: stat.st_ino as u64,
            mode: stat.st_mode as RawMode,
            names: u64::from(stat.st_nlink),
            user: stat.st_uid,
            group: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            gives_rights: false,
        }
    }
}

#[cfg(test)]
impl Facts {
    /// What the system could say of something of this kind and mode.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast,
        reason = "the width of a mode differs between platforms"
    )]
    pub(crate) fn made_up(mode: u32, user: u32) -> Self {
        Self {
            device: 0,
            number: 0,
            mode: mode as RawMode,
            names: 1,
            user,
            group: 0,
            size: 0,
            gives_rights: false,
        }
    }
}

impl Facts {
    /// Device and number: the same as long as a file lives, whatever its name.
    pub fn inode(&self) -> (u64, u64) {
        (self.device, self.number)
    }

    /// Whether it is a file with content of its own.
    pub fn is_regular(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    /// How many names it has; 0 once it was removed.
    pub fn names(&self) -> u64 {
        self.names
    }

    /// Whether it belongs to this process's user.
    pub fn is_ours(&self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }

    /// Whether it belongs to root.
    pub fn is_roots(&self) -> bool {
        self.is_of(0)
    }

    /// Whether it belongs to the user of this number.
    pub fn is_of(&self, user: u32) -> bool {
        self.user == user
    }

    /// The other user to whom belongs what root makes in this folder: its owner, whom root's rights would keep out. `None`
    /// where this process is not root, and where root keeps what it makes: in folders of its own, where every user makes
    /// files, and where the group has its rights.
    pub fn owner_of_new(&self) -> Option<u32> {
        let keeps = self.is_roots() || self.all_may_write() || self.sharing() == Sharing::Group;
        (!keeps && rustix::process::geteuid().is_root()).then_some(self.user)
    }

    /// The owner, for people: by name where the machine knows one.
    pub fn owner_text(&self) -> String {
        let number = self.user;
        match user_name(number) {
            Some(name) => format!("{name} (user {number})"),
            None => format!("user {number}"),
        }
    }

    /// The owner's name, or number.
    pub fn owner_name(&self) -> String {
        let number = self.user;
        user_name(number).unwrap_or_else(|| number.to_string())
    }

    /// The group's name, or number.
    pub fn group_name(&self) -> String {
        let number = self.group;
        name_in(GROUPS, number).unwrap_or_else(|| number.to_string())
    }

    /// The rights as `chmod` takes them: `3770`.
    pub fn mode_text(&self) -> String {
        format!("{:o}", self.mode().as_raw_mode() & 0o7777)
    }

    /// Whether it is a folder that several users are meant to write in: all users, each their own files, or
    /// a group that all new files belong to.
    pub(crate) fn is_made_for_several(&self) -> bool {
        let mode = self.mode();
        (mode.contains(Mode::WOTH) && self.is_sticky())
            || (mode.contains(Mode::WGRP) && mode.intersects(Mode::SGID | Mode::SVTX))
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Whether all users may write.
    pub fn all_may_write(&self) -> bool {
        self.mode().contains(Mode::WOTH)
    }

    /// Whether a user other than the owner may write.
    pub fn others_may_write(&self) -> bool {
        self.mode().intersects(Mode::WGRP | Mode::WOTH)
    }

    /// Whether a user other than the owner may see what is in it.
    pub fn others_may_look(&self) -> bool {
        self.mode()
            .intersects(Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH)
    }

    /// Whether all users may see what is in it.
    pub fn all_may_look(&self) -> bool {
        self.mode().intersects(Mode::ROTH | Mode::XOTH)
    }

    /// Whether in this folder each user may remove only their own files.
    pub fn is_sticky(&self) -> bool {
        self.mode().contains(Mode::SVTX)
    }

    /// For whom this folder's files are made. The setgid bit says that what is made here belongs to the
    /// folder's group, so the group has the rights to the files that it has to the folder. A default ACL says who has rights
    /// to what is made here. In a folder that all users may write to, each user's files are that user's alone.
    pub fn sharing(&self) -> Sharing {
        let mode = self.mode();
        let is_meant = mode.contains(Mode::SGID) || self.gives_rights;
        if !is_meant || !mode.contains(Mode::RGRP | Mode::XGRP) || self.all_may_write() {
            Sharing::Owner
        } else if mode.contains(Mode::WGRP) {
            Sharing::Group
        } else {
            Sharing::GroupReads
        }
    }

    /// Asks whether it gives what is made in it an ACL, where that says more than its mode: the rights of the group are then
    /// the mask of all that others have. The ACLs of other systems than Linux have no such rule.
    fn with_access_list(mut self, ask: impl FnOnce(&mut [u8; 64]) -> Result<usize, Errno>) -> Self {
        let mode = self.mode();
        if cfg!(target_os = "linux")
            && self.kind() == FileType::Directory
            && mode.contains(Mode::RWXG)
            && !mode.contains(Mode::SGID)
        {
            // A head, and an entry each for the owner, the group and the others: such a list names nobody. One for which
            // there is no room does.
            self.gives_rights = match ask(&mut [0; 64]) {
                Ok(length) => length > 4 + 3 * 8,
                Err(errno) => errno == Errno::RANGE,
            };
        }
        self
    }

    /// Whether its files are for those whom its ACL names.
    pub fn is_listed(&self) -> bool {
        self.gives_rights && self.sharing() == Sharing::Group
    }

    /// Whether the users for whom this file is made have their rights to it: a strict umask takes some even
    /// from the user that makes a file.
    pub fn is_shared(&self, sharing: Sharing) -> bool {
        self.mode().contains(file_mode(sharing))
    }
}

/// The name of this process's user, or the number.
pub fn our_name() -> String {
    let number = rustix::process::geteuid().as_raw();
    user_name(number).unwrap_or_else(|| number.to_string())
}

/// The number of this process's user.
pub fn our_number() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Looks at what is open.
pub fn facts(file: impl AsFd) -> Result<Facts, Errno> {
    let facts = look(&file, Path::new(""), ITSELF)?;
    Ok(facts
        .with_access_list(|list| rustix::fs::fgetxattr(&file, "system.posix_acl_default", list)))
}

/// With an empty path: what is open itself. Where no such flag exists, no call takes it.
#[cfg(target_os = "linux")]
const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
#[cfg(not(target_os = "linux"))]
const ITSELF: AtFlags = AtFlags::empty();

/// Looks at what a path leads to, through links.
pub fn facts_of(path: &Path) -> Result<Facts, Errno> {
    let facts = look(CWD, path, AtFlags::empty())?;
    Ok(facts.with_access_list(|list| rustix::fs::getxattr(path, "system.posix_acl_default", list)))
}

/// Looks at what a name leads to, itself and not what a link points at.
pub fn facts_at(folder: impl AsFd, name: impl AsRef<Path>) -> Result<Facts, Errno> {
    look(folder, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)
}

/// Asks for everything but the times. A kernel whose file systems have fine times (Linux 6.13) notes that a
/// caller was told one, and gives the next write a time of its own. Noting that in the file system costs such
/// a write as much again as the rest of it.
#[cfg(target_os = "linux")]
fn look(folder: impl AsFd, path: &Path, flags: AtFlags) -> Result<Facts, Errno> {
    use rustix::fs::{StatxFlags, makedev, statx};
    const ASKED: StatxFlags = StatxFlags::TYPE
        .union(StatxFlags::MODE)
        .union(StatxFlags::NLINK)
        .union(StatxFlags::UID)
        .union(StatxFlags::GID)
        .union(StatxFlags::INO)
        .union(StatxFlags::SIZE);
    match statx(&folder, path, flags, ASKED) {
        Ok(found) if StatxFlags::from_bits_retain(found.stx_mask).contains(ASKED) => Ok(Facts {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
            mode: found.stx_mode.into(),
            names: found.stx_nlink.into(),
            user: found.stx_uid,
            group: found.stx_gid,
            size: found.stx_size,
            gives_rights: false,
        }),
        // An old kernel, a filter that knows no such call and answers as it likes, or a file system that does not say
        // all of it. A right that is really missing is missing for the other call as well.
        Ok(_)
        | Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP) => {
            look_with_times(folder, path, flags).map(|stat| Facts::from(&stat))
        }
        Err(errno) => Err(errno),
    }
}

/// Asks for everything: no call of this system leaves the times out.
#[cfg(not(target_os = "linux"))]
fn look(folder: impl AsFd, path: &Path, flags: AtFlags) -> Result<Facts, Errno> {
    look_with_times(folder, path, flags).map(|stat| Facts::from(&stat))
}

fn look_with_times(folder: impl AsFd, path: &Path, flags: AtFlags) -> Result<Stat, Errno> {
    if path.as_os_str().is_empty() {
        return rustix::fs::fstat(folder);
    }
    rustix::fs::statat(folder, path, flags)
}

/// Looks at what is open, and when it was written last, in milliseconds since the epoch.
pub fn facts_and_time(file: impl AsFd) -> Result<(Facts, u64), Errno> {
    let stat = rustix::fs::fstat(file)?;
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    #[allow(
        clippy::useless_conversion,
        reason = "the field's width differs between platforms"
    )]
    let nanos = u64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let modified_ms = seconds.saturating_mul(1_000) + nanos / 1_000_000;
    Ok((Facts::from(&stat), modified_ms))
}

/// The root folder of this process at some moment, kept open. From then on the process may have another one (`chroot`,
/// `pivot_root`, another mount namespace), and paths lead elsewhere for it, and for no other process.
#[derive(Debug)]
pub struct Root {
    fd: Descriptor,
    /// Device and number, and the mount where the system has a number for it.
    was: ((u64, u64), Option<u64>),
}

impl Root {
    /// The present one; `None` if it cannot be opened.
    pub fn present() -> Option<Self> {
        let fd = rustix::fs::open("/", ROOT, Mode::empty()).ok()?;
        let was = root_of(&fd, Path::new("")).ok()?;
        Some(Self { fd, was })
    }

    /// Whether this process has another one now.
    pub fn is_left(&self) -> bool {
        root_of(CWD, Path::new("/")).is_ok_and(|is| is != self.was)
    }

    /// Looks at what a path leads to from here, through links that are followed from here as well.
    #[cfg(target_os = "linux")]
    pub fn facts_of(&self, path: &Path) -> Result<Facts, Errno> {
        use rustix::fs::{ResolveFlags, openat2};
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let found = openat2(&self.fd, path, how, Mode::empty(), ResolveFlags::IN_ROOT)?;
        facts(found)
    }

    /// No call follows links from another root here.
    #[cfg(not(target_os = "linux"))]
    pub fn facts_of(&self, _: &Path) -> Result<Facts, Errno> {
        let _ = &self.fd;
        Err(Errno::NOSYS)
    }
}

#[cfg(target_os = "linux")]
const ROOT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const ROOT: OFlags = FOLDER;

#[cfg(target_os = "linux")]
fn root_of(folder: impl AsFd, path: &Path) -> Result<((u64, u64), Option<u64>), Errno> {
    use rustix::fs::{StatxFlags, statx};
    let inode = look(&folder, path, ITSELF)?.inode();
    // The copy of a mount in another namespace has a number of its own.
    let found = statx(&folder, path, ITSELF, StatxFlags::MNT_ID).ok();
    let found = found
        .filter(|found| StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID));
    Ok((inode, found.map(|found| found.stx_mnt_id)))
}

#[cfg(not(target_os = "linux"))]
fn root_of(folder: impl AsFd, path: &Path) -> Result<((u64, u64), Option<u64>), Errno> {
    let found = look(folder, path, ITSELF)?;
    Ok((found.inode(), None))
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a folder by its path.
pub fn open_folder(path: &Path) -> Result<Descriptor, Errno> {
    rustix::fs::open(path, FOLDER, Mode::empty())
}

/// Opens a folder by its path, unless the last part of its name is a link.
pub(crate) fn open_folder_itself(path: &Path) -> Result<Descriptor, Errno> {
    rustix::fs::open(path, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// Looks at a link itself. `None` if the name leads to something else.
pub(crate) fn link_at(path: &Path) -> Result<Option<Facts>, Errno> {
    let facts = facts_at(CWD, path)?;
    let is_link = facts.kind() == FileType::Symlink;
    Ok(is_link.then_some(facts))
}

/// Opens a file for reading by its path, through links or not (`LOOP`). It waits for nothing: a pipe may
/// stand there.
pub fn open_by_path(path: &Path, through_links: bool) -> Result<Descriptor, Errno> {
    let common = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if through_links {
        common
    } else {
        common | OFlags::NOFOLLOW
    };
    rustix::fs::open(path, flags, Mode::empty())
}

/// Opens a folder inside of another, and not through a link.
pub fn open_folder_in(folder: impl AsFd, name: &str) -> Result<Descriptor, Errno> {
    rustix::fs::openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// Makes a folder for this user alone, with rights that no umask adds to or takes from.
pub fn make_folder(path: &Path) -> Result<(), Errno> {
    make_folder_at(CWD, path)
}

/// Makes a folder that others may look into, as far as the umask lets them.
pub(crate) fn make_parent(path: &Path) -> Result<(), Errno> {
    rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755))?;
    let made = Mode::from_raw_mode(rustix::fs::stat(path)?.st_mode);
    // The calling user has to get through it, whatever the umask.
    if made.contains(Mode::RWXU) {
        return Ok(());
    }
    rustix::fs::chmod(path, made.union(Mode::RWXU))
}

/// Makes a folder for this user alone inside of another.
pub(crate) fn make_folder_in(folder: impl AsFd, name: &str) -> Result<(), Errno> {
    make_folder_at(folder, name.as_ref())
}

fn make_folder_at(folder: impl AsFd, name: &Path) -> Result<(), Errno> {
    rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
    rustix::fs::chmodat(&folder, name, Mode::RWXU, AtFlags::empty())
}

/// Opens a file in a folder.
pub fn open_file(
    folder: impl AsFd,
    name: impl AsRef<Path>,
    how: Open,
) -> Result<Descriptor, Errno> {
    // Without O_NONBLOCK a planted FIFO would keep this process here for ever.
    let common = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = match how {
        Open::Read => OFlags::RDONLY | common,
        Open::Change => OFlags::RDWR | common,
        Open::Create => OFlags::RDWR | OFlags::CREATE | common,
        Open::Append => OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | common,
        Open::Extend => OFlags::RDWR | OFlags::APPEND | common,
        Open::New => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
    };
    let open = |flags| rustix::fs::openat(&folder, name.as_ref(), flags, OWNER_ONLY);
    match how {
        // Every change reads first. The time of that read is no event, and noting it would cost as much as
        // noting the time of the write. Only a file's owner may ask for that.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        Open::Change | Open::Create => match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            opened => opened,
        },
        _ => open(flags),
    }
}

/// Opens a file again, under an open file of its own, for reading or for changing. A copy of the
/// descriptor would share its locks.
///
/// # Errors
/// - Whatever the system answers.
pub fn reopen(file: BorrowedDescriptor<'_>, changes: bool) -> io::Result<Descriptor> {
    // If that fails, a copy has to do. The caller can wait; if it dies without leaving, its claim counts
    // until the byte that it waited for is let go.
    reopened(file, changes).or_else(|_| file.try_clone_to_owned())
}

/// Opens a file again, and never answers with a copy.
pub fn reopened(file: BorrowedDescriptor<'_>, changes: bool) -> Result<Descriptor, Errno> {
    let access = if changes {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    open_again(
        file,
        access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
    )
}

#[cfg(target_os = "linux")]
fn open_again(file: BorrowedDescriptor<'_>, flags: OFlags) -> Result<Descriptor, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty())
}

/// By its name, under which another file may stand by now. `/dev/fd` would only give a copy here.
#[cfg(not(target_os = "linux"))]
fn open_again(file: BorrowedDescriptor<'_>, flags: OFlags) -> Result<Descriptor, Errno> {
    let path = rustix::fs::getpath(file)?;
    let opened = rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let (this, other) = (rustix::fs::fstat(file)?, rustix::fs::fstat(&opened)?);
    if (this.st_dev, this.st_ino) == (other.st_dev, other.st_ino) {
        Ok(opened)
    } else {
        Err(Errno::NOENT)
    }
}

/// Moves the open file to the lowest free number from `min` on; where there is none, as it is.
pub fn moved_above(descriptor: Descriptor, min: i32) -> Descriptor {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, min).unwrap_or(descriptor)
}

/// A copy of a descriptor that an exec leaves open.
pub fn left_open(descriptor: BorrowedDescriptor<'_>) -> io::Result<Descriptor> {
    let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

/// Takes a file's rights from all but its owner, and gives its owner what a strict umask took.
pub fn keep_to_owner(file: impl AsFd) -> Result<(), Errno> {
    share(file, Sharing::Owner)
}

/// The rights to a file that is made for these users.
fn file_mode(sharing: Sharing) -> Mode {
    match sharing {
        Sharing::Owner => OWNER_ONLY,
        Sharing::GroupReads => OWNER_ONLY | Mode::RGRP,
        Sharing::Group => OWNER_ONLY | Mode::RGRP | Mode::WGRP,
    }
}

/// Gives a file's rights to these users and takes them from all others, whatever the umask. Mostly
/// they are right already, and a look spares the file system a change.
pub fn share(file: impl AsFd, sharing: Sharing) -> Result<(), Errno> {
    share_new(file, sharing, None)
}

/// Shares a file that this call has made, of which `owner` is to be the owner ([`Facts::owner_of_new`]).
pub fn share_new(file: impl AsFd, sharing: Sharing, owner: Option<u32>) -> Result<(), Errno> {
    let (mode, facts) = (file_mode(sharing), facts(&file)?);
    if let Some(owner) = owner.filter(|owner| !facts.is_of(*owner)) {
        give(owner, &file);
    }
    if facts.mode() == mode {
        return Ok(());
    }
    rustix::fs::fchmod(file, mode)
}

/// Gives a new folder the rights that the group has to the folder around it.
pub(crate) fn share_folder(folder: impl AsFd, around: &Facts) -> Result<(), Errno> {
    let group = around.mode() & (Mode::RWXG | Mode::SGID | Mode::SVTX);
    rustix::fs::fchmod(folder, group | Mode::RWXU)
}

/// Gives a file to the users that may make files in a folder, and to no others: to the folder's owner and,
/// if its group may write there, to that group. Where that group shares the folder, the file has the mode of all
/// files there. Elsewhere every user that gets as far as the folder may read it, because rights that an access
/// list gives cannot be told from those of the group. A file of another user stays as it is, unless this process
/// is root.
pub fn share_within(folder: &Facts, file: impl AsFd) -> Result<(), Errno> {
    let (there, here) = (folder, facts(&file)?);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !here.is_ours() {
        return Ok(());
    }
    let by_group = folder.mode().contains(Mode::WGRP);
    let owner = (is_root && here.user != there.user).then_some(there.user);
    let group = (by_group && here.group != there.group).then_some(there.group);
    if owner.is_some() || group.is_some() {
        let owner = owner.map(rustix::fs::Uid::from_raw);
        let group = group.map(rustix::fs::Gid::from_raw);
        match rustix::fs::fchown(&file, owner, group) {
            // A user that is no member of the group may write here by an access list; all users can read
            // it.
            Err(_) if by_group => {}
            other => other?,
        }
    }
    let wanted = match folder.sharing() {
        Sharing::Owner if by_group => OWNER_ONLY | Mode::RGRP | Mode::WGRP | Mode::ROTH,
        sharing => file_mode(sharing),
    };
    if facts(&file)?.mode() == wanted {
        return Ok(());
    }
    rustix::fs::fchmod(file, wanted)
}

/// Gives what this call has made to this user, if it is root's. A file system without owners refuses, and needs it not.
fn give(owner: u32, made: impl AsFd) {
    let is_roots = |facts: Facts| facts.is_roots() && facts.is_ours();
    if facts(&made).is_ok_and(is_roots) {
        let owner = rustix::fs::Uid::from_raw(owner);
        let _ = rustix::fs::fchown(made, Some(owner), None);
    }
}

/// Gives a folder that was made by its name. Another process may have put something else there since, so only an
/// empty folder is given away.
pub(crate) fn give_folder(owner: u32, folder: &Descriptor) {
    let is_own = |name: &[u8]| matches!(name, b"." | b"..");
    let is_empty = rustix::fs::Dir::read_from(folder).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| is_own(entry.file_name().to_bytes())))
    });
    if is_empty {
        give(owner, folder);
    }
}

/// Shows the first `N` bytes of a file, or as many as it has.
pub fn with_start<const N: usize, R>(
    file: impl AsFd,
    look: impl FnOnce(&[u8]) -> R,
) -> Result<R, Errno> {
    loop {
        let mut space = [MaybeUninit::uninit(); N];
        match rustix::io::pread(&file, &mut space, 0) {
            Ok((read, _)) => return Ok(look(read)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Reads from an offset on.
pub fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::pread(file, buffer, offset)
}

/// Reads on from where the file stands.
pub fn read(file: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::read(file, buffer)
}

/// Writes from an offset on.
pub fn write_at(file: impl AsFd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::pwrite(file, bytes, offset)
}

/// Writes bytes that lie apart from an offset on. The system may take a part of them only.
pub fn write_parts_at(
    file: impl AsFd,
    parts: &[io::IoSlice<'_>],
    offset: u64,
) -> Result<usize, Errno> {
    match parts {
        [part] => write_at(file, part, offset),
        parts => rustix::io::pwritev(file, parts, offset),
    }
}

/// Writes where the file stands: at its end, if it was opened for appending.
pub fn write(file: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::io::write(file, bytes)
}

/// Writes to stdout, past all buffers.
pub fn write_stdout(bytes: &[u8]) -> Result<usize, Errno> {
    rustix::io::write(rustix::stdio::stdout(), bytes)
}

/// Cuts a file to a length.
pub fn cut(file: impl AsFd, length: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, length)
}

/// Sets a file's time of change to now, and changes nothing else.
pub fn touch(file: impl AsFd) -> Result<(), Errno> {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(file, &times)
}

/// Waits until the content of a file is on the disk.
pub fn sync(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fsync(file)
}

/// Waits until the names in a folder are on the disk.
pub fn sync_folder(folder: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fsync(folder)
}

/// Removes a name of a file.
pub fn remove(folder: impl AsFd, name: impl AsRef<Path>) -> Result<(), Errno> {
    rustix::fs::unlinkat(folder, name.as_ref(), AtFlags::empty())
}

/// Removes a folder in which nothing is.
pub(crate) fn remove_folder(folder: impl AsFd, name: &str) -> Result<(), Errno> {
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// Gives a file another name, in place of any file that has it.
pub fn rename(
    from_folder: impl AsFd,
    from: impl AsRef<Path>,
    to_folder: impl AsFd,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    rustix::fs::renameat(from_folder, from.as_ref(), to_folder, to.as_ref())
}

/// Gives a file another name, if nothing has it. `INVAL` or `NOSYS` where the file system cannot.
pub fn rename_new(
    from_folder: impl AsFd,
    from: impl AsRef<Path>,
    to_folder: impl AsFd,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (from, to) = (from.as_ref(), to.as_ref());
    rustix::fs::renameat_with(from_folder, from, to_folder, to, RenameFlags::NOREPLACE)
}

/// Has two files change their names, in one step.
pub fn exchange(
    one_folder: impl AsFd,
    one: impl AsRef<Path>,
    other_folder: impl AsFd,
    other: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (one, other) = (one.as_ref(), other.as_ref());
    rustix::fs::renameat_with(one_folder, one, other_folder, other, RenameFlags::EXCHANGE)
}

/// Gives a file a second name, if nothing has it.
pub fn link(
    from_folder: impl AsFd,
    from: impl AsRef<Path>,
    to_folder: impl AsFd,
    to: impl AsRef<Path>,
) -> Result<(), Errno> {
    let (from, to) = (from.as_ref(), to.as_ref());
    rustix::fs::linkat(from_folder, from, to_folder, to, AtFlags::empty())
}

/// Shows every name in a folder that is UTF-8; tenure gives no other names.
pub fn each_name(folder: impl AsFd, each: &mut dyn FnMut(&str)) -> Result<(), Errno> {
    each_entry(folder, &mut |name| {
        if let Some(name) = name {
            each(name);
        }
    })
}

/// Shows every name in a folder; `None` for one that is not UTF-8.
pub(crate) fn each_entry(
    folder: impl AsFd,
    each: &mut dyn FnMut(Option<&str>),
) -> Result<(), Errno> {
    for item in rustix::fs::Dir::read_from(folder)? {
        each(item?.file_name().to_str().ok());
    }
    Ok(())
}

/// Shows every name in a folder but those of folders.
pub fn each_file(folder: impl AsFd, each: &mut dyn FnMut(&str)) -> Result<(), Errno> {
    for item in rustix::fs::Dir::read_from(&folder)? {
        let item = item?;
        let name = item.file_name();
        let kind = match item.file_type() {
            // Not every file system says it with the name.
            FileType::Unknown => rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |found| {
                    FileType::from_raw_mode(found.st_mode)
                }),
            kind => kind,
        };
        if let Ok(name) = name.to_str()
            && kind != FileType::Directory
        {
            each(name);
        }
    }
    Ok(())
}

/// Locks a whole file against others who do so, if that is possible at once.
pub fn try_lock_file(file: impl AsFd) -> Result<bool, Errno> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Lets go of it.
pub fn unlock_file(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::Unlock)
}

/// Open-file-description locks on ranges of bytes: they belong to the descriptor and its copies.
mod ranges {
    use super::raw as call;
    use super::{BorrowedDescriptor, Errno};

    fn range(first: i64, length: i64, kind: i32) -> libc::flock {
        libc::flock {
            l_type: i16::try_from(kind).unwrap_or(0),
            l_whence: 0, // SEEK_SET
            l_start: first,
            l_len: length,
            l_pid: 0,
        }
    }

    /// The kinds of locks, whose width differs between platforms.
    #[allow(clippy::unnecessary_cast, reason = "it is not the same type on macOS")]
    mod kinds {
        pub(super) const READ: i32 = libc::F_RDLCK as i32;
        pub(super) const WRITE: i32 = libc::F_WRLCK as i32;
        pub(super) const NONE: i32 = libc::F_UNLCK as i32;
    }
    use kinds::{NONE, READ, WRITE};

    fn kind(exclusive: bool) -> i32 {
        if exclusive { WRITE } else { READ }
    }

    /// Takes a byte if that is possible at once. False if another open file has it.
    pub fn try_lock_byte(
        file: BorrowedDescriptor<'_>,
        byte: i64,
        exclusive: bool,
    ) -> Result<bool, Errno> {
        match call::set(file, &range(byte, 1, kind(exclusive))) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Takes two neighbouring bytes in one step, exclusively. `second` is the second of them.
    pub fn try_lock_both(file: BorrowedDescriptor<'_>, second: i64) -> Result<bool, Errno> {
        match call::set(file, &range(second - 1, 2, kind(true))) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Lets go of them, whichever of them is held.
    pub fn unlock_both(file: BorrowedDescriptor<'_>, second: i64) -> Result<(), Errno> {
        call::set(file, &range(second - 1, 2, NONE))
    }

    /// Lets go of all bytes from this one on, whichever of them are held.
    pub fn unlock_from(file: BorrowedDescriptor<'_>, first: i64) -> Result<(), Errno> {
        call::set(file, &range(first, 0, NONE)) // to the end of all offsets
    }

    /// Takes a byte, sleeping in the kernel for as long as another open file has it. `INTR` when a
    /// signal handler ran; nothing is taken then.
    pub fn lock_byte(
        file: BorrowedDescriptor<'_>,
        byte: i64,
        exclusive: bool,
    ) -> Result<(), Errno> {
        call::wait(file, &range(byte, 1, kind(exclusive)))
    }

    /// Lets go of a byte. Letting go of one that is not held is no error.
    pub fn unlock_byte(file: BorrowedDescriptor<'_>, byte: i64) -> Result<(), Errno> {
        call::set(file, &range(byte, 1, NONE))
    }

    /// Whether another open file has the byte exclusively. Takes nothing.
    pub fn is_byte_locked(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
        look(file, byte, 1, READ)
    }

    /// Whether another open file has the byte in any way. Takes nothing.
    pub fn is_byte_shared(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
        look(file, byte, 1, WRITE)
    }

    /// Whether another open file has any byte from this one on.
    pub fn is_any_locked_from(file: BorrowedDescriptor<'_>, byte: i64) -> Result<bool, Errno> {
        look(file, byte, 0, READ) // to the end of all offsets
    }

    /// Whether anything is locked that a lock of this kind would meet.
    fn look(
        file: BorrowedDescriptor<'_>,
        first: i64,
        length: i64,
        kind: i32,
    ) -> Result<bool, Errno> {
        let mut found = range(first, length, kind);
        call::look(file, &mut found)?;
        Ok(i32::from(found.l_type) != NONE)
    }
}

pub use ranges::{
    is_any_locked_from, is_byte_locked, is_byte_shared, lock_byte, try_lock_both, try_lock_byte,
    unlock_both, unlock_byte, unlock_from,
};

/// Waits until one of the descriptors can be read, at most for `time`. True if one can. `INTR`
/// when a signal handler ran.
pub fn poll(descriptors: &[BorrowedDescriptor<'_>], time: Duration) -> Result<bool, Errno> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timespec = Timespec::try_from(time).map_err(|_| Errno::INVAL)?;
    let mut polled: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    poll(&mut polled, Some(&timespec)).map(|ready| ready > 0)
}

/// A descriptor that can be read once so much time has passed. The time that the machine sleeps counts.
/// `None` where the system has no such thing, or gives none.
#[cfg(target_os = "linux")]
pub fn alarm(time: Duration) -> Option<Descriptor> {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let alarm = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(time).ok()?,
    };
    timerfd_settime(&alarm, TimerfdTimerFlags::empty(), &once).ok()?;
    Some(alarm)
}

/// `None`: this system has no such descriptor.
#[cfg(not(target_os = "linux"))]
pub fn alarm(_: Duration) -> Option<Descriptor> {
    None
}

/// Reads all that a descriptor has to tell, which is not waited for.
pub fn read_all(descriptor: &Descriptor) -> Notice {
    let mut buffer = [0; 64];
    let mut told = Notice::Nothing;
    loop {
        match rustix::io::read(descriptor, &mut buffer) {
            Ok(0) => return Notice::Ended,
            Ok(_) => told = Notice::Changed,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return told,
            Err(_) => return Notice::Ended,
        }
    }
}

/// The end of a bell that is rung. Dropping it is heard as well.
#[derive(Debug)]
pub struct Ringer(Descriptor);

/// The end that hears it, and can be polled.
#[derive(Debug)]
pub struct Bell(Descriptor);

/// A bell that wakes a sleeper.
pub fn bell() -> io::Result<(Bell, Ringer)> {
    #[cfg(target_os = "linux")]
    let (hears, rings) = {
        use rustix::pipe::PipeFlags;
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?
    };
    #[cfg(not(target_os = "linux"))]
    let (hears, rings) = {
        let (hears, rings) = rustix::pipe::pipe()?;
        for end in [&hears, &rings] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(end, true)?;
        }
        (hears, rings)
    };
    Ok((Bell(hears), Ringer(rings)))
}

impl Ringer {
    /// Wakes the sleeper, or keeps it from falling asleep.
    pub fn ring(&self) {
        // A full pipe wakes as well.
        let _ = rustix::io::write(&self.0, &[1]);
    }
}

impl Bell {
    /// What to poll.
    pub fn descriptor(&self) -> BorrowedDescriptor<'_> {
        self.0.as_fd()
    }

    /// Takes in all that was rung. True once no [`Ringer`] is left.
    pub fn hear(&self) -> bool {
        let mut buffer = [0; 64];
        loop {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(0) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Watches files.
#[cfg(target_os = "linux")]
mod watch {
    use super::super::WatchFor;
    use super::{BorrowedDescriptor, Descriptor, Errno};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use std::os::fd::AsFd;
    use std::path::Path;

    /// How many instances stay for the user's other programs (editors, `tail -f`). A user may have 128 by default, and
    /// a machine of agents has more runs than that.
    const RESERVE: usize = 16;

    /// A watch on files, which can be polled. Costs an inotify instance.
    #[derive(Debug)]
    pub struct Watch(Descriptor);

    impl Watch {
        /// A watch of nothing yet.
        ///
        /// # Errors
        /// - `EMFILE`, if that would leave the user's other programs fewer than `RESERVE` instances. The caller looks
        ///   again from time to time then.
        pub fn new() -> Result<Self, Errno> {
            let init = || inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
            let own = init()?;
            // The system does not say how many are left. Without a watch in them, 16 cost 50 µs.
            let others: Result<Vec<_>, Errno> = (0..RESERVE).map(|_| init()).collect();
            others.map(|_| Self(own))
        }

        /// Watches a file from now on.
        pub fn add(&self, file: &Path, notices: WatchFor) -> Result<(), Errno> {
            let touches = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            let what = match notices {
                WatchFor::Changes => touches | WatchFlags::MODIFY,
                WatchFor::Touches => touches,
                WatchFor::Moves => {
                    WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR
                }
                WatchFor::Files => WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO,
                WatchFor::Ends => {
                    WatchFlags::MODIFY
                        | WatchFlags::CREATE
                        | WatchFlags::MOVE
                        | WatchFlags::ATTRIB
                        | WatchFlags::DELETE
                        | WatchFlags::CLOSE_WRITE
                }
            };
            inotify::add_watch(&self.0, file, what).map(|_| ())
        }

        /// What to poll.
        pub fn descriptor(&self) -> BorrowedDescriptor<'_> {
            self.0.as_fd()
        }

        /// Takes in all that it has to tell, so that it is not told twice.
        pub fn settle(&self) {
            let mut buffer = [0; 1024];
            while rustix::io::read(&self.0, &mut buffer).is_ok_and(|read| read > 0) {}
        }

        /// The descriptor, for a caller that polls it itself.
        pub fn into_descriptor(self) -> Descriptor {
            self.0
        }
    }
}

/// Nothing can be watched here, so a caller looks again after a pause.
#[cfg(not(target_os = "linux"))]
mod watch {
    use super::super::WatchFor;
    use super::{BorrowedDescriptor, Descriptor, Errno};
    use std::convert::Infallible;
    use std::path::Path;

    /// No value exists: this system has no watches.
    #[derive(Debug)]
    pub struct Watch(Infallible);

    impl Watch {
        /// Makes no watch here.
        ///
        /// # Errors
        /// - Always: the system has none.
        pub fn new() -> Result<Self, Errno> {
            Err(Errno::NODEV)
        }

        /// Would watch a file.
        pub fn add(&self, _: &Path, _: WatchFor) -> Result<(), Errno> {
            match self.0 {}
        }

        /// Descriptor that would be polled.
        pub fn descriptor(&self) -> BorrowedDescriptor<'_> {
            match self.0 {}
        }

        /// Would take in all that it has to tell.
        pub fn settle(&self) {
            match self.0 {}
        }

        /// Descriptor for a caller that would poll it itself.
        pub fn into_descriptor(self) -> Descriptor {
            match self.0 {}
        }
    }
}

pub use watch::Watch;

/// Random bytes of the kernel's.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    #[cfg(not(target_os = "linux"))]
    let filled = {
        let source = rustix::fs::open(
            "/dev/urandom",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::io::read(&source, &mut *bytes)?
    };
    if filled == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The number of this process's user, for a file name of its own.
pub fn user_number() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The machine's own lists of users and groups.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The name of a user, as the machine's own list has it.
fn user_name(number: u32) -> Option<String> {
    name_in(USERS, number)
}

/// The name that a list has for a number.
fn name_in(list: &str, number: u32) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(list).ok()?;
    file.take(1 << 20).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let known: u32 = fields.nth(1)?.parse().ok()?;
        (known == number).then(|| name.to_owned())
    })
}

/// Whether this process may make files in a folder.
pub fn may_write_in(folder: impl AsFd) -> Result<(), Errno> {
    use rustix::fs::Access;
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(folder, ".", rights, AtFlags::empty())
}

/// A new file in a folder that has no name and gets none, so nothing is left of it in any case. `None` where the
/// file system has no such files.
#[cfg(target_os = "linux")]
pub fn nameless_file(folder: impl AsFd) -> Result<Option<Descriptor>, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, ".", flags, OWNER_ONLY) {
        Ok(file) => Ok(Some(file)),
        // Kernels that do not know the flag see a folder that is to be written.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Gives nothing: this system has none.
#[cfg(not(target_os = "linux"))]
#[allow(
    clippy::unnecessary_wraps,
    reason = "where there are such files, the call can fail"
)]
pub fn nameless_file(_: impl AsFd) -> Result<Option<Descriptor>, Errno> {
    Ok(None)
}

/// What is mounted where a folder is. It is not asked for.
#[cfg(not(target_os = "linux"))]
pub fn mount_of(_: impl AsFd) -> Option<Mount> {
    None
}

/// The kind of file system if other machines, or another program, stand behind it.
#[cfg(target_os = "linux")]
pub fn remote_kind_of(file: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let stat = rustix::fs::fstatfs(file)?;
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        clippy::unnecessary_cast,
        reason = "the kernel's magic numbers have 32 bits; the field's width and sign differ"
    )]
    let magic = stat.f_type as u32;
    Ok(remote_kind(magic))
}

/// Magic numbers from `linux/magic.h` and the file systems' own headers: all that coreutils' `stat` calls remote, but what it
/// calls so only because no change there is reported (overlayfs, aufs, pipes).
#[cfg(target_os = "linux")]
fn remote_kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "nfs",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "smb/cifs",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE (or virtiofs)",
        0x00c3_6400 => "ceph",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x7375_7245 => "coda",
        0x564c => "ncp",
        0x0bd0_0bd0 => "lustre",
        0x0116_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        0x2003_0528 => "orangefs",
        0xaad7_aaea => "panfs",
        0xbeef_dead => "stornext",
        0xa501_fcf5 => "vxfs",
        0x6163_6673 => "acfs",
        0x0131_11a8 => "ibrix",
        0x6e66_7364 => "nfsd",
        0x786f_4256 => "vboxsf (a folder of VirtualBox's host)",
        0xbacb_acbc => "vmhgfs (a folder of VMware's host)",
        0x7c7c_6673 => "prl_fs (a folder of Parallels' host)",
        _ => return None,
    })
}

/// The kind of file system if it is not one of this machine's own (the `MNT_LOCAL` flag).
#[cfg(not(target_os = "linux"))]
pub fn remote_kind_of(file: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let stat = rustix::fs::fstatfs(file)?;
    let local = u32::try_from(libc::MNT_LOCAL).unwrap_or(0);
    Ok((stat.f_flags & local == 0).then_some("a network file system"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_opened_for_a_change_keeps_the_time_of_its_last_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = open_folder(folder.path()).expect("a folder");
        let file = open_file(&there, "a", Open::Create).expect("a file");
        write_at(&file, b"text", 0).expect("a write");
        let before = rustix::fs::fstat(&file).expect("its facts").st_atime;
        let long_ago = rustix::fs::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: long_ago,
            last_modification: long_ago,
        };
        assert!(before > 1, "a file of today");
        for how in [Open::Create, Open::Change] {
            let file = open_file(&there, "a", how).expect("the same file");
            rustix::fs::futimens(&file, &times).expect("its own file");
            assert_eq!(read_at(&file, &mut [0; 8], 0), Ok(4));
            assert_eq!(
                rustix::fs::fstat(&file).expect("its facts").st_atime,
                1,
                "{how:?}"
            );
        }
    }

    #[test]
    fn what_is_asked_without_the_times_is_what_the_older_call_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = open_folder(folder.path()).expect("a folder");
        let file = open_file(&there, "a", Open::Create).expect("a file");
        write_at(&file, b"text", 0).expect("a write");
        link(&there, "a", &there, "b").expect("a second name");
        let told = |facts: &Facts| format!("{facts:?}");
        for (asked, older) in [
            (facts(&file), rustix::fs::fstat(&file)),
            (facts(&there), rustix::fs::fstat(&there)),
            (facts_of(folder.path()), rustix::fs::stat(folder.path())),
            (
                facts_of(Path::new("/dev/null")),
                rustix::fs::stat("/dev/null"),
            ),
            (facts_at(&there, "b"), rustix::fs::fstat(&file)),
        ] {
            let (asked, older) = (asked.expect("facts"), older.expect("facts"));
            assert_eq!(told(&asked), told(&Facts::from(&older)));
        }
        let (facts, _) = facts_and_time(&file).expect("facts");
        assert!((facts.size(), facts.names()) == (4, 2) && facts.is_regular());
        assert_eq!(facts_at(&there, "c").map(|_| ()), Err(Errno::NOENT));
    }

    #[test]
    fn network_file_systems_are_known_by_their_numbers_and_local_ones_pass() {
        for remote in [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0x6573_5546,
            0x00c3_6400,
            0x5346_414f,
            0x6b41_4653,
            0x7375_7245,
            0x564c,
            0x0bd0_0bd0,
            0x0116_1970,
            0x7461_636f,
            0x4750_4653,
            0x1983_0326,
            0x2003_0528,
            0xaad7_aaea,
            0xbeef_dead,
            0xa501_fcf5,
            0x6163_6673,
            0x0131_11a8,
            0x6e66_7364,
            0x786f_4256,
            0xbacb_acbc,
            0x7c7c_6673,
        ] {
            assert!(remote_kind(remote).is_some(), "{remote:#x}");
        }
        for (local, name) in [
            (0xef53, "ext4"),
            (0x0102_1994, "tmpfs"),
            (0x5846_5342, "xfs"),
            (0x9123_683e, "btrfs"),
            (0x794c_7630, "overlayfs"),
        ] {
            assert_eq!(remote_kind(local), None, "{name}");
        }
    }
}
