//! The names of one lock's files.
//!
//! Which names a lock has is said by the store (`file`), and what the files hold by `pages` and `publication`.

use tenure_core::LockName;

/// The names of one lock's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The lock.
    pub(super) name: LockName,
    /// Its coordination file.
    pub(super) list: String,
    /// Its record, where the profile publishes.
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
