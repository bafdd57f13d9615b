//! The names of one lock's files.
//!
//! The store (`file`) says which names a lock has, `pages` and `publication` say what the files hold.

use tenure_core::LockName;

/// The names of one lock's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The lock.
    pub(super) name: LockName,
    /// Name of the coordination file.
    pub(super) list: String,
    /// Name of the record, where the profile publishes.
    pub(super) record: String,
}

impl Names {
    /// The file that people are shown: the record where one is published.
    pub(super) fn shown(&self) -> &str {
        if self.record.is_empty() {
            &self.list
        } else {
            &self.record
        }
    }
}
