//! `run --die-with-parent` and `--die-with PID`: Linux alone lets a process follow another one by a handle of it.

use crate::failure::Failure;
use crate::request::Follow;
use std::convert::Infallible;
use std::time::Duration;

/// Nothing is followed here, and so nothing ends.
pub(super) fn reason() -> Option<String> {
    None
}

/// Nothing is followed here.
pub(super) struct Followed(Infallible);

pub(super) fn begin(_: Follow, _: Duration) -> Result<Followed, Failure> {
    Err(Failure::bad_arguments(
        "--die-with: only on Linux a run can follow the life of another process; leave the flag out",
    ))
}

impl Followed {
    pub(super) fn watch(self) -> Result<(), Failure> {
        match self.0 {}
    }
}
