//! What `doctor` is to look at. It fails for words that make no call, and for nothing that it is there to find:
//! what is wrong with the place of a call stands in the request.

use super::place::files_of;
use super::{Place, Surroundings};
use crate::args::{Common, DoctorArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use std::path::PathBuf;
use tenure_engine::config::Scope;
use tenure_engine::machine::{self, Group};
use tenure_engine::place::{line_that_makes, machines_folder};
use tenure_engine::printed::quoted_for_unix;

/// Looks at the place of the locks, and at what they rest on.
#[derive(Debug)]
pub(crate) struct Doctor {
    /// Where the locks are, or why that is not known.
    pub(crate) place: Result<Place, Failure>,
    /// The configurations that count here, or why one of them cannot be used.
    pub(crate) files: Result<Vec<PathBuf>, Failure>,
    pub(crate) fix: Fix,
    /// The flags by which another call finds the same place, as a shell reads them; each begins with a space.
    pub(crate) flags: String,
}

/// What is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fix {
    Nothing,
    /// What can be mended safely.
    Safely,
    /// The same, and the machine's folder is made for a group.
    MachinesFolder {
        folder: PathBuf,
        group: Group,
        /// As it was typed.
        name: String,
    },
}

impl Doctor {
    pub(crate) fn of(typed: &DoctorArgs, around: &Surroundings) -> Result<Self, Failure> {
        let mut common = typed.common.clone();
        let fix = match &typed.group {
            None if typed.fix => Fix::Safely,
            None => Fix::Nothing,
            Some(name) => {
                if !matches!(common.scope, None | Some(Scope::Machine)) {
                    return Err(Failure::bad_arguments(
                        "--group: only the machine's folder is a group's; leave --scope out",
                    ));
                }
                common.scope = Some(Scope::Machine);
                folder_for(name)?
            }
        };
        let files = files_of(around);
        let place = Place::of(&common, around);
        if let Err(failure) = &place
            && failure.code == "BAD_ARGUMENTS"
            && files.is_ok()
            && names_a_place(&common)
        {
            return Err(failure.clone());
        }
        Ok(Self {
            flags: flags_of(&common),
            place,
            files,
            fix,
        })
    }
}

/// The machine's folder, for the group of this name.
fn folder_for(name: &str) -> Result<Fix, Failure> {
    let Some(group) = Group::named(name) else {
        return Err(Failure::bad_arguments(format!(
            "--group: there is no group {name:?} in /etc/group; a group that is kept elsewhere is named by its \
             number"
        )));
    };
    let folder = machines_folder()?;
    if !machine::may_make() {
        let line = line_that_makes(&folder.display().to_string(), name);
        return Err(Failure::new(
            Exit::Permission,
            "PERMISSION_DENIED",
            format!("only root makes {}: {line}", folder.display()),
        ));
    }
    Ok(Fix::MachinesFolder {
        folder,
        group,
        name: name.to_owned(),
    })
}

/// Whether a flag has a say in where the locks are, or by which rules.
fn names_a_place(common: &Common) -> bool {
    common.dir.is_some()
        || common.store.is_some()
        || common.profile.is_some()
        || common.project_root.is_some()
        || common.lock_file_name.is_some()
        || common.stale_after.is_some()
        || common.audit_dir.is_some()
}

/// The typed flags by which another call finds the same place.
fn flags_of(common: &Common) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    // A URL may have a password in it, and the line is printed.
    let store = common.store.as_ref();
    let store = store.map(|url| if url.contains('@') { "URL" } else { url }.to_owned());
    let named = [
        ("--dir", path(&common.dir)),
        ("--store", store),
        (
            "--scope",
            common.scope.map(|scope| scope.as_str().to_owned()),
        ),
        ("--profile", common.profile.clone()),
        ("--project-root", path(&common.project_root)),
        ("--lock-file-name", common.lock_file_name.clone()),
        ("--config", path(&common.config)),
    ];
    let mut flags: String = named
        .into_iter()
        .filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted_for_unix(&value?))))
        .collect();
    if common.allow_network_fs {
        flags.push_str(" --allow-network-fs");
    }
    flags
}
