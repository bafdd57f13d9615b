//! Whose an inherited hold is: of which lock, of which claim, and whether the caller works under that claim.

use super::{Hold, holds};
use std::path::{Path, PathBuf};
use tenure_core::{Claim, Host, LockName};
use tenure_os::process::{Kin, kin_of_run};
use tenure_store::profile::ends_without_release;

/// The folder that a path leads to. Links, two bind mounts of one folder and `/proc/self/root` differ
/// in their text, but not in their device and number. A path that leads nowhere is known by its text,
/// and so is the URL of servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Folder {
    /// A folder that is there.
    #[cfg(unix)]
    Found {
        /// The device of its file system.
        device: u64,
        /// The number of the folder on that device.
        number: u64,
    },
    /// A folder that is not there, or servers.
    Named(PathBuf),
}

impl Folder {
    /// The folder to which a path leads now.
    #[cfg(unix)]
    pub fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        match path.metadata() {
            Ok(found) => Self::Found {
                device: found.dev(),
                number: found.ino(),
            },
            Err(_) => Self::Named(path.to_owned()),
        }
    }

    /// The folder to which a path leads now.
    #[cfg(not(unix))]
    pub fn of(path: &Path) -> Self {
        Self::Named(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }

    /// Whether both paths lead to the same folder.
    pub fn is_same(one: &Path, other: &Path) -> bool {
        one == other || Self::of(one) == Self::of(other)
    }
}

/// The inherited holds of this lock. There may be several, of which the later ones were taken
/// after the earlier ones were over. A folder is the same under every name that leads to it.
pub fn of(folder: &Path, name: &LockName) -> Vec<Hold> {
    let mut holds = holds();
    if holds.is_empty() {
        return holds;
    }
    holds.retain(|hold| hold.name == name.as_str() && Folder::is_same(&hold.folder, folder));
    holds
}

/// Whether one of these holds of a lock is this claim of it.
pub fn have(holds: &[Hold], claim: &Claim) -> bool {
    holds.iter().any(|hold| Some(hold.token) == claim.token)
}

/// Whether this call is a part of the work of a run, which has this claim. Ancestry says nothing of a hold of a program
/// (a guard, serve): the program works on beside what it starts, and may give the lock back meanwhile.
pub fn kin_of(claim: &Claim, here: &Host) -> Kin {
    let holder = &claim.holder;
    let Some(supervisor) = holder.process.filter(|_| !claim.kind.is_detached()) else {
        return Kin::Unknown;
    };
    match &holder.command {
        Some(command) if *command != supervisor => {
            kin_of_run(&supervisor, Some(command), &holder.host, here)
        }
        None if ends_without_release(claim) || is_unnamed_run(claim) => {
            kin_of_run(&supervisor, None, &holder.host, here)
        }
        Some(_) | None => Kin::Unknown,
    }
}

/// Whether a supervised run has this claim, whose command works and is not recorded yet: over servers that takes as long as
/// they do. Until then, all that its supervisor has started is a part of its work. Only such runs have a grace.
pub fn is_unnamed_run(claim: &Claim) -> bool {
    claim.token.is_some() && claim.grace_ms > 0
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use tenure_core::{Holder, Kind, Lease, Process, RequestId, Stamp};
    use tenure_os::process::{Identity, start_time};

    /// A run is known by its supervisor before its command is recorded. A program's guard is not: it has no command at all.
    #[test]
    fn work_of_a_run_without_a_recorded_command_is_inside_of_it() {
        let here = Identity::current().host;
        let mut child = Command::new("sleep");
        let mut child = child
            .arg("100")
            .stdin(Stdio::null())
            .spawn()
            .expect("a process");
        let parent = std::os::unix::process::parent_id();
        let claim_of = |pid: u32, grace_ms: u64| {
            let process = Process {
                pid,
                started: start_time(pid),
            };
            let holder = Holder {
                request_id: RequestId::new("run-1").expect("an id"),
                actor: String::new(),
                process: Some(process),
                command: None,
                host: here.clone().into(),
                why: String::new(),
                facts: Vec::new(),
            };
            let at = Stamp {
                wall_ms: 0,
                boot_ms: 0,
            };
            let lease = Lease {
                ttl_ms: 30_000,
                renewed: at,
                renewals: 0,
            };
            let mut claim = Claim::new(1, Kind::Kernel, holder, at, lease);
            (claim.token, claim.grace_ms) = (Some(2), grace_ms);
            claim
        };
        let rows = [
            ("the supervisor is above", parent, 10_000, Kin::Inside),
            ("a guard of a program above", parent, 0, Kin::Unknown),
            ("a run elsewhere", child.id(), 10_000, Kin::Outside),
        ];
        for (what, pid, grace_ms, expected) in rows {
            let kin = kin_of(&claim_of(pid, grace_ms), &here);
            assert_eq!(kin, expected, "{what}");
        }
        child.kill().and_then(|()| child.wait()).expect("its end");
    }

    #[test]
    fn a_folder_is_the_same_by_every_path_that_leads_to_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let [folder, link, other] =
            ["folder", "link", "other"].map(|name| scratch.path().join(name));
        for made in [&folder, &other] {
            std::fs::create_dir(made).expect("a folder");
        }
        std::os::unix::fs::symlink(&folder, &link).expect("a link");
        let mut paths = vec![link, scratch.path().join("other/../folder")];
        if cfg!(target_os = "linux") {
            let text = format!("/proc/self/root{}", folder.display());
            paths.push(text.into());
        }
        for path in paths {
            assert!(Folder::is_same(&folder, &path), "{}", path.display());
        }
        assert!(!Folder::is_same(&folder, &other));
        let nowhere = scratch.path().join("nowhere");
        assert!(Folder::is_same(&nowhere, &nowhere));
        assert!(!Folder::is_same(&nowhere, &folder));
    }
}
