//! Keeps what a command starts in a control group (version 2) of its own, where it cannot be
//! adopted.
//!
//! We go into the group before the command is started and come back right after. So the command is born
//! in it, and all that descends from it as well. No program of ours runs between fork and exec. Our older
//! children stay where they are. The group sets no limits.
//!
//! **No other process is ever hit.** One write kills the whole group, and it is not made while we are
//! in it ourselves. A single process is signalled by a handle, and only if the kernel has named it as a
//! member of the group after the handle was opened. If its number has passed to another process by
//! then, that process is not in the group, or the handle is that of the dead one.
//!
//! **No process is asked twice.** As in `descendants`: a process whose parent is in the group is left
//! to that parent.
//!
//! # Crash safety
//! If we are killed, the group stays, with the processes that run in it. It holds no lock and sets no
//! limits. A daemon that outlives its run leaves a group in the same way. Its name has the number of
//! its maker. The next run that makes a group in the same place removes it, once it is empty and its
//! maker is gone.
//!
//! `descendants` decides whether a group is needed; `supervise` decides when to ask and by which
//! signal.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal, test_kill_process,
};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tenure_os::process::{group_of, parent_of};

/// What the names of our groups begin with; the number of their maker follows.
const PREFIX: &str = "tenure-";

/// How many groups below ours are looked at. A command may make some; none makes this many.
const GROUPS_MAX: usize = 1024;

/// How many handles are open at a time.
const HANDLES_MAX: usize = 64;

/// How many groups that earlier runs have left are looked at.
const LEFT_BEHIND_MAX: usize = 64;

/// A control group for one command after the other.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// The group that we belong to, as the kernel names it to us.
    home: Vec<u8>,
    /// Folder of that group.
    home_folder: PathBuf,
    /// Our own one in it.
    name: String,
    folder: PathBuf,
}

impl Cgroup {
    /// Makes a group inside the one that we are in. `None` where that is not possible: no control group
    /// of version 2, no right to write to it, or a kernel that is too old.
    #[cold]
    #[inline(never)]
    pub(super) fn make() -> Option<Self> {
        // Without handles no process in the group could be signalled safely.
        pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let home = current()?;
        let mut random = [0; 4];
        let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        if filled != Ok(random.len()) {
            return None;
        }
        let random = u32::from_ne_bytes(random);
        let name = format!("{PREFIX}{}-{random:08x}", std::process::id());
        let mounts = fs::read("/proc/self/mountinfo").ok()?;
        folders(&mounts, &home).into_iter().find_map(|home_folder| {
            let folder = home_folder.join(&name);
            fs::create_dir(&folder).ok()?;
            let cgroup = Self {
                home: home.clone(),
                home_folder,
                name: name.clone(),
                folder,
            };
            // A folder that is no control group after all is removed again.
            if !cgroup.folder.join("cgroup.procs").exists() {
                return None;
            }
            remove_left_behind(&cgroup.home_folder);
            Some(cgroup)
        })
    }

    /// Goes in, so that what is started next is born in it. False if that cannot be; then it is of
    /// no use.
    #[cold]
    #[inline(never)]
    pub(super) fn enter(&self) -> bool {
        if self.are_we_inside() {
            return true;
        }
        // Another process has moved us meanwhile, and the way back would be another one.
        if current().as_ref() != Some(&self.home) {
            return false;
        }
        // A run that cannot see that we live may have removed it while it was empty.
        match fs::create_dir(&self.folder) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => return false,
        }
        if put(&self.folder, "cgroup.procs", "0").is_err() {
            return false;
        }
        // Another mount may cover the one that was found; then this was a write to somewhere else.
        let inside = self.are_we_inside();
        if !inside {
            let _ = self.leave();
        }
        inside
    }

    /// Comes back. An error leaves us inside, and says so in words.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(&self) -> Result<(), String> {
        put(&self.home_folder, "cgroup.procs", "0").map_err(|error| {
            format!(
                "tenure cannot leave the control group that it has made for the command ({error}); \
                 the run goes on, and {} stays behind if it still cannot at the end",
                self.folder.display()
            )
        })
    }

    /// Whether any process but us runs in it.
    #[cold]
    #[inline(never)]
    pub(super) fn is_populated(&self) -> bool {
        if self.are_we_inside() {
            return !self.members().is_empty();
        }
        is_populated(&self.folder).unwrap_or_else(|_| !self.members().is_empty())
    }

    /// The processes that run in it, groups below it included, without us.
    pub(super) fn members(&self) -> Vec<Pid> {
        let own = getpid();
        let mut members = Vec::new();
        for group in groups(&self.folder) {
            let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            let numbers = listed.lines().filter_map(|line| line.parse().ok());
            // Zero is a process that cannot be seen from here.
            members.extend(numbers.filter_map(Pid::from_raw).filter(|pid| *pid != own));
        }
        members
    }

    /// Asks each process that has lost its parent and was not asked with the command's group or before.
    #[cold]
    #[inline(never)]
    pub(super) fn ask(
        &self,
        signal: Signal,
        command: Pid,
        group: Option<Pid>,
        asked: &mut Vec<Pid>,
    ) {
        let members = self.members();
        asked.retain(|pid| members.contains(pid));
        for &pid in &members {
            let together = group.is_some() && group_of(pid) == group;
            let is_orphan = |parent: u32, members: &[Pid]| !has(members, parent);
            if pid == command
                || together
                || asked.contains(&pid)
                || !parent_of(number(pid)).is_some_and(|parent| is_orphan(parent, &members))
            {
                continue;
            }
            // Look once more, at the very process that will get the signal.
            let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            let parent = parent_of(number(pid));
            // Read after the parent was: a parent that is not in it now has ended, or was never in it.
            let members = self.members();
            if !members.contains(&pid) || !parent.is_some_and(|it| is_orphan(it, &members)) {
                continue;
            }
            asked.push(pid);
            // Refused where it belongs to another user; then we can only wait for it.
            let _ = pidfd_send_signal(&handle, signal);
            // A stopped process cannot answer.
            let _ = pidfd_send_signal(&handle, Signal::CONT);
        }
    }

    /// Kills every process in it, groups below it included; never us.
    #[cold]
    #[inline(never)]
    pub(super) fn kill(&self) {
        if !self.are_we_inside() && put(&self.folder, "cgroup.kill", "1").is_ok() {
            return;
        }
        // The kernel cannot do it at once, or we are inside. A process that is born meanwhile is killed
        // at the next look.
        for some in self.members().chunks(HANDLES_MAX) {
            let opened = some.iter().filter_map(|pid| {
                let handle = pidfd_open(*pid, PidfdFlags::empty()).ok()?;
                Some((*pid, handle))
            });
            let opened: Vec<_> = opened.collect();
            let members = self.members();
            for (_, handle) in opened.iter().filter(|(pid, _)| members.contains(pid)) {
                let _ = pidfd_send_signal(handle, Signal::KILL);
            }
        }
    }

    /// Whether we are in it or below it. Not knowing it counts as yes.
    fn are_we_inside(&self) -> bool {
        let Some(current) = current() else {
            return true;
        };
        let home = self.home.strip_suffix(b"/").unwrap_or(&self.home);
        current
            .strip_prefix(home)
            .and_then(|rest| rest.strip_prefix(b"/"))
            .and_then(|rest| rest.strip_prefix(self.name.as_bytes()))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl Drop for Cgroup {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        if self.are_we_inside() {
            let _ = self.leave();
        }
        // A daemon that goes on keeps it.
        remove(&self.folder);
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn has(members: &[Pid], wanted: u32) -> bool {
    members.iter().any(|pid| number(*pid) == wanted)
}

/// Writes to a file of a control group. It never makes the file: then it would be one outside of a
/// control group.
fn put(folder: &Path, name: &str, value: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(folder.join(name))?;
    file.write_all(value.as_bytes())
}

/// Whether any process runs in a group or below it.
fn is_populated(folder: &Path) -> std::io::Result<bool> {
    match fs::read(folder.join("cgroup.events")) {
        Ok(events) => Ok(events
            .split(|byte| *byte == b'\n')
            .any(|line| line == b"populated 1")),
        // Only an empty one can be removed.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A group and those below it; each stands before those below it.
fn groups(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next) {
        next += 1;
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let below: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .take(GROUPS_MAX.saturating_sub(found.len()))
            .collect();
        found.extend(below);
    }
    found
}

/// Removes a group and those below it. Not where a daemon goes on: it may have made the empty ones
/// below it for later.
fn remove(folder: &Path) {
    if !is_populated(folder).is_ok_and(|any| !any) {
        return;
    }
    for group in groups(folder).iter().rev() {
        // The kernel refuses this where a process runs in it by now.
        let _ = fs::remove_dir(group);
    }
}

/// Removes what earlier runs could not: those that were killed, or had left a daemon.
fn remove_left_behind(home: &Path) {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let maker = name.to_str().and_then(maker).and_then(Pid::from_raw);
        // The kernel's word: a maker that cannot be looked at counts as alive.
        maker.is_some_and(|maker| test_kill_process(maker) == Err(Errno::SRCH))
    });
    for entry in ours.take(LEFT_BEHIND_MAX) {
        remove(&entry.path());
    }
}

/// The number of the process that made a group of this name, if it is one of ours.
fn maker(name: &str) -> Option<i32> {
    let (maker, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    maker.parse().ok()
}

/// The control group that we are in.
fn current() -> Option<Vec<u8>> {
    let text = fs::read("/proc/self/cgroup").ok()?;
    let mut lines = text.split(|byte| *byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(b"0::"))
        .map(<[u8]>::to_vec)
}

/// Where the folder of a control group may be, by what is mounted (the content of
/// `/proc/self/mountinfo`).
fn folders(mounts: &[u8], group: &[u8]) -> Vec<PathBuf> {
    // The group lies outside of what we are shown.
    if group.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Vec::new();
    }
    let folder = |line: &[u8]| -> Option<PathBuf> {
        let mut fields = line.split(|byte| *byte == b' ');
        let root = decoded(fields.nth(3)?);
        let point = decoded(fields.next()?);
        // A number of optional fields ends with a dash.
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        if kind != b"cgroup2" {
            return None;
        }
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        let below = group.strip_prefix(root)?;
        let below = match below.strip_prefix(b"/") {
            Some(below) => below,
            None if below.is_empty() => below,
            // Another group whose name begins like it.
            None => return None,
        };
        let point = PathBuf::from(std::ffi::OsString::from_vec(point));
        Some(if below.is_empty() {
            point
        } else {
            point.join(OsStr::from_bytes(below))
        })
    };
    let lines = mounts.split(|byte| *byte == b'\n');
    lines.filter_map(folder).collect()
}

/// A field of a table of the kernel's, in which blanks and the like are `\` and three octal digits.
fn decoded(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| first == b'\\');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(byte.unwrap_or(first));
        let used = if byte.is_some() { 3 } else { 0 };
        rest = after.get(used..).unwrap_or_default();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        23 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        40 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 23 0:38 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw\n\
        42 23 0:38 /a/b /mnt/with\\040blank\\134 rw - cgroup2 none rw\n\
        43 23 0:38 /../c /outside rw - cgroup2 none rw\n\
        short\n";

    fn found(group: &str) -> Vec<PathBuf> {
        folders(MOUNTS.as_bytes(), group.as_bytes())
    }

    #[test]
    fn a_group_is_found_below_every_mount_that_shows_it() {
        let at = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(found("/"), at(&["/sys/fs/cgroup"]));
        assert_eq!(found("/a"), at(&["/sys/fs/cgroup/a"]));
        assert_eq!(
            found("/a/b"),
            at(&["/sys/fs/cgroup/a/b", "/mnt/with blank\\"])
        );
        assert_eq!(
            found("/a/b/c d"),
            at(&["/sys/fs/cgroup/a/b/c d", "/mnt/with blank\\/c d"])
        );
        assert_eq!(
            found("/a/bc"),
            at(&["/sys/fs/cgroup/a/bc"]),
            "a longer name is another group"
        );
        assert_eq!(found("/../a"), at(&[]), "outside of what we are shown");
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for (field, plain) in [
            (&br"\040"[..], &b" "[..]),
            (br"a\011b\012", b"a\tb\n"),
            (br"\04", br"\04"),
            (br"\999", br"\999"),
            (br"\777", br"\777"),
            (b"", b""),
        ] {
            assert_eq!(decoded(field), plain, "{field:?}");
        }
    }

    #[test]
    fn only_names_of_ours_have_a_maker() {
        assert_eq!(maker("tenure-12-00ab34cd"), Some(12));
        for other in ["tenure-12", "tenure-x-1", "tenure--1", "my-tenure-1-2", ""] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
