//! `doctor`: its flags, and what it is to look at. It fails for words that make no call, and for nothing that it is there to find:
//! what is wrong with the place of a call stands in the request.

use crate::args::Common;
use clap::Args;
#[cfg(unix)]
use {
    super::place::files_of,
    super::{Place, Surroundings},
    crate::failure::Failure,
    std::path::PathBuf,
};

/// `doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure doctor                  which folder or servers, and what is wrong
  tenure doctor --output json | jq '.data // .error.context | .checks[]'

doctor first says which folder or servers a call here uses, why, who can use them, and on which file system they \
are. Then each check is ok, a note, or wrong, with a line that says what to do. Two processes test the locks, \
with a file that has no name.

doctor changes nothing.

Exit code: 0 if nothing is wrong (there may be notes), 1 if something is.")]
pub(crate) struct DoctorArgs {
    /// The part of the other process in the trial of the locks; the file is on stdin.
    #[arg(long, hide = true)]
    pub(crate) in_trial: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Looks at the place of the locks, and at what they rest on.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Doctor {
    /// Where the locks are, or why that is not known.
    pub(crate) place: Result<Place, Failure>,
    /// The configurations that count here, or why one of them cannot be used.
    pub(crate) files: Result<Vec<PathBuf>, Failure>,
}

#[cfg(unix)]
impl Doctor {
    pub(crate) fn of(typed: &DoctorArgs, around: &Surroundings) -> Result<Self, Failure> {
        let common = &typed.common;
        let files = files_of(around);
        let place = Place::of(common, around);
        if let Err(failure) = &place
            && failure.code == "BAD_ARGUMENTS"
            && files.is_ok()
            && names_a_place(common)
        {
            return Err(failure.clone());
        }
        Ok(Self { place, files })
    }
}

/// Whether a flag has a say in where the locks are, or by which rules.
#[cfg(unix)]
fn names_a_place(common: &Common) -> bool {
    common.dir.is_some()
        || common.store.is_some()
        || common.profile.is_some()
        || common.project_root.is_some()
        || common.lock_file_name.is_some()
        || common.stale_after.is_some()
        || common.audit_dir.is_some()
}
