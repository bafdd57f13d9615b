//! What `doctor` is to look at. It fails for words that make no call, and for nothing that it is there to find:
//! what is wrong with the place of a call stands in the request.

use super::place::files_of;
use super::{Place, Surroundings};
use crate::args::{Common, DoctorArgs};
use crate::failure::Failure;
use std::path::PathBuf;

/// Looks at the place of the locks, and at what they rest on.
#[derive(Debug)]
pub(crate) struct Doctor {
    /// Where the locks are, or why that is not known.
    pub(crate) place: Result<Place, Failure>,
    /// The configurations that count here, or why one of them cannot be used.
    pub(crate) files: Result<Vec<PathBuf>, Failure>,
}

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
fn names_a_place(common: &Common) -> bool {
    common.dir.is_some()
        || common.store.is_some()
        || common.profile.is_some()
        || common.project_root.is_some()
        || common.lock_file_name.is_some()
        || common.stale_after.is_some()
        || common.audit_dir.is_some()
}
