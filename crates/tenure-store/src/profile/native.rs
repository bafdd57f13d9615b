//! The native profile: kernel locks prove life, callers queue, and there is no format that other
//! programs read: the coordination file is the lock.

use super::Profile;
use tenure_core::{LockName, Policy};

/// What a file of this profile ends with.
pub(crate) const SUFFIX: &str = ".tenure";

/// The profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Profile for Native {
    fn policy(&self) -> Policy {
        Policy::NATIVE
    }

    fn file_name(&self, name: &LockName) -> String {
        let mut file = String::with_capacity(name.as_str().len() + SUFFIX.len());
        file.push_str(name.as_str());
        file.push_str(SUFFIX);
        file
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        LockName::new(file.strip_suffix(SUFFIX)?).ok()
    }
}
