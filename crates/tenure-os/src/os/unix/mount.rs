//! The mount that a file is on, as the system's own list has it: its file system, and whether other programs of this
//! machine see the same files there.

use crate::os::Mount;
use std::fs::read_link;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
struct MountLine {
    id: String,
    device: String,
    /// What of the file system is mounted.
    root: PathBuf,
    at: PathBuf,
    /// What is mounted there elsewhere appears here, too.
    is_fed: bool,
    file_system: String,
}

/// What is mounted where a folder is; `None` where the system does not tell.
pub fn mount_of(folder: impl AsFd) -> Option<Mount> {
    let number = folder.as_fd().as_raw_fd();
    // By the mount itself: two mounts may have one device, and one mount several (btrfs).
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let id = facts
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    let lines = lines_of("self")?;
    let ours = lines.iter().find(|line| line.id == id.trim())?;
    let is_apart = read_link(format!("/proc/self/fd/{number}"))
        .is_ok_and(|path| is_apart(&path, ours, &lines).unwrap_or(false));
    Some(Mount {
        file_system: ours.file_system.clone(),
        is_apart,
    })
}

/// Whether the first process sees another folder at this path. Who may not look at that process goes by what systemd does
/// for a unit: it hands on what is mounted later, and its own mounts are fed by no other.
fn is_apart(path: &Path, ours: &MountLine, lines: &[MountLine]) -> Option<bool> {
    let space = |of: &str| read_link(format!("/proc/{of}/ns/mnt")).ok();
    let (here, first) = (space("self")?, space("1"));
    if first.is_some_and(|first| first == here) {
        return Some(false);
    }
    if let Some(theirs) = lines_of("1") {
        // A later mount covers an earlier one.
        let above = theirs.iter().filter(|line| path.starts_with(&line.at));
        let theirs = above.max_by_key(|line| line.at.components().count())?;
        return Some(theirs.place_of(path) != ours.place_of(path));
    }
    Some(is_of_unit(ours, lines))
}

fn is_of_unit(ours: &MountLine, lines: &[MountLine]) -> bool {
    let is_private = ours.root.to_string_lossy().contains("/systemd-private-");
    let is_fed = |line: &MountLine| line.at == Path::new("/") && line.is_fed;
    is_private || (lines.iter().any(is_fed) && !ours.is_fed)
}

impl MountLine {
    /// Where a path is on its device.
    fn place_of(&self, path: &Path) -> Option<(&str, PathBuf)> {
        let below = path.strip_prefix(&self.at).ok()?;
        Some((&self.device, self.root.join(below)))
    }
}

fn lines_of(process: &str) -> Option<Vec<MountLine>> {
    let list = std::fs::read(format!("/proc/{process}/mountinfo")).ok()?;
    let lines: Vec<MountLine> = String::from_utf8_lossy(&list)
        .lines()
        .filter_map(read)
        .collect();
    (!lines.is_empty()).then_some(lines)
}

/// `36 35 98:0 /root /at rw,noatime master:1 - ext3 /dev/root rw`
fn read(line: &str) -> Option<MountLine> {
    let (front, behind) = line.split_once(" - ")?;
    let mut words = front.split(' ');
    let mut next = || words.next();
    let (id, _, device, root, at, _) = (next()?, next()?, next()?, next()?, next()?, next()?);
    Some(MountLine {
        id: id.to_owned(),
        device: device.to_owned(),
        root: unescaped(root),
        at: unescaped(at),
        is_fed: words.any(|word| word.starts_with("master:")),
        file_system: behind.split(' ').next()?.to_owned(),
    })
}

/// A path of the list, where blanks and the like stand as three digits.
fn unescaped(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (escaped, sign) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(escaped, sign);
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user who may not look at the first process is told by the list alone.
    #[test]
    fn a_units_own_mounts_are_known_by_the_list() {
        let list = "21 1 8:1 / / rw shared:2 master:1 - ext4 /dev/a rw\n\
                    22 21 0:5 / /home rw shared:9 - tmpfs tmpfs ro\n\
                    23 21 8:1 /tmp/systemd-private-7-x.service-a/tmp /tmp rw shared:8 master:1 - ext4 /dev/a rw\n\
                    24 21 0:7 / /srv/a\\040b rw master:4 - xfs /dev/b rw\n";
        let lines: Vec<MountLine> = list.lines().filter_map(read).collect();
        assert_eq!(
            lines.get(3).map(|line| line.at.as_path()),
            Some(Path::new("/srv/a b"))
        );
        let of_unit: Vec<bool> = lines.iter().map(|line| is_of_unit(line, &lines)).collect();
        assert_eq!(of_unit, [false, true, true, false]);
        let places: Vec<_> = lines
            .iter()
            .map(|line| line.place_of(&line.at.join("x")))
            .collect();
        assert_eq!(places.first(), Some(&Some(("8:1", PathBuf::from("/x")))));
    }
}
