//! The resume profile.

use super::{Profile, Record};
use tenure_core::{Claim, Host, LockName, Now, Policy};

/// The profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resume;

impl Profile for Resume {
    fn policy(&self) -> Policy {
        Policy::RESUME
    }

    fn file_name(&self, name: &LockName) -> String {
        format!("{name}.lock")
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        LockName::new(file.strip_suffix(".lock")?).ok()
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for Resume {
    fn encode(&self, _: &LockName, _: &Claim, _: Option<&[u8]>) -> Result<Vec<u8>, String> {
        Err("not written yet".to_owned())
    }

    fn decode(&self, _: &LockName, _: &[u8], _: &Now, _: &Host) -> Result<Claim, String> {
        Err("not read yet".to_owned())
    }
}
